// vortex COMMAND ...: finds the command, reads its options, runs it, reports.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static vx_status command_help(options *o);

// clang-format off
const command command_table[] = {
    { "generate", CMD_GENERATE, "-m MODEL -p PROMPT -o FILE.mp4 [OPTIONS]", "make a video with sound from a prompt", command_generate },
    { "decode", CMD_DECODE, "-m MODEL --latents FILE -o FILE.mp4 [OPTIONS]", "make the video from saved latents", command_decode },
    { "encode", CMD_ENCODE, "-m MODEL --image|--video|--audio|--pixels|--waveform FILE --save-tensors FILE", "picture, video or sound to latents", command_encode },
    { "tokenize", CMD_TOKENIZE, "-m MODEL [TEXT]", "token ids of a text", command_tokenize },
    { "plan", CMD_PLAN, "-m MODEL -p PROMPT [OPTIONS]", "all that generate decides, without running: rows, work, memory, files", command_plan },
    { "inspect", CMD_INSPECT, "FILE|DIR", "what a checkpoint, latents file or finished MP4 holds, and what is wrong with it", command_inspect },
    { "bench", CMD_BENCH, "NAME [-m MODEL] [OPTIONS]\nNAME is one of " BENCH_NAMES, "time one operator or one stage of a model, as JSON (without -m: the released sizes, made-up weights, on a GPU)", command_bench },
    { "doctor", CMD_DOCTOR, "", "machine, libraries and memory, with a remedy for each problem", command_doctor },
    { "demo-model", CMD_DEMO, "DIR [--random|--released] [--seed N]", "write a complete small checkpoint", command_demo },
    { "help", CMD_HELP, "[COMMAND] [--man] [--completion]", "this help", command_help },
};
// clang-format on
const int command_count = (int)(sizeof command_table / sizeof *command_table);

static const command *find_command(const char *name)
{
    for (int i = 0; i < command_count; i++)
        if (!strcmp(name, command_table[i].name)) return &command_table[i];
    return NULL;
}

static vx_status not_a_command(const char *name)
{
    vx_status s = usage_error(VX_ERR_USAGE, "", "'%.60s' is not a command", name);
    snprintf(s.remedy, sizeof s.remedy, "see vortex help");
    return s;
}

static vx_status command_help(options *o)
{
    if (o->man) print_man(stdout);
    else if (o->completion) print_completion(stdout);
    else if (o->arguments && !find_command(o->argument[0])) return not_a_command(o->argument[0]);
    else print_help(stdout, o->arguments ? o->argument[0] : NULL);
    return (vx_status){ 0 };
}

// Whether errors of the options themselves are reported as JSON, too.
static bool asks_for_json(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--json")) return true;
    return false;
}

static int run(const command *c, int argc, char **argv)
{
    options o = { .command = c->id, .command_name = c->name, .json = asks_for_json(argc, argv) };
    watch_signals(o.json);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--")) break;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(stdout, c->name);
            return 0;
        }
    }
    vx_status s = options_parse(&o, argc, argv);
    if (!s.code) s = c->run(&o);
    if (!s.code) s = check_stdout();
    int status = s.code && s.message[0] ? report_error(&o, s) : vx_exit_status(s.code);
    options_free(&o);
    return status;
}

// A standard descriptor that is closed would be given to the next file opened, and messages would be written into it.
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) {
            // Standard output stays unwritable: a result that cannot be told is an error.
            int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
            (void)opened;
        }
}

// glibc learns from large blocks that are freed to keep such blocks, up to 64 MB of them. Plans count on having them back.
static void give_memory_back(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

int main(int argc, char **argv)
{
    give_memory_back();
    keep_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); // a reader that went away is an error of that write
    signal(SIGXFSZ, SIG_IGN); // so is a file-size limit
    if (argc < 2) {
        print_help(stderr, NULL);
        return 2;
    }
    if (!strcmp(argv[1], "--version")) {
        print_version(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(stdout, NULL);
        return 0;
    }
    const command *c = find_command(argv[1]);
    return c ? run(c, argc, argv) : report_error(&(options){ .json = asks_for_json(argc, argv) }, not_a_command(argv[1]));
}
