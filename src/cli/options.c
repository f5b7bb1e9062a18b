// Reading arguments. What belongs to a request comes from the library's field table; the table here holds the rest.
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define AT(member) offsetof(options, member)

// clang-format off
const option option_table[] = {
    { "--model", "-m", "PATH", CMD_MODEL, AT(model),
      "official root or partition, diffusers folder, ComfyUI's folder, or the transformer's file [$VORTEX_MODEL]" },
    { "--text-encoder", NULL, "PATH", CMD_MODEL, AT(text_encoder), "text encoder, where it is not in the model" },
    { "--video-vae", NULL, "PATH", CMD_MODEL, AT(video_vae), "video VAE, where it is not in the model" },
    { "--audio-vae", NULL, "PATH", CMD_MODEL, AT(audio_vae), "audio VAE, where it is not in the model" },
    { "--tokenizer", NULL, "PATH", CMD_MODEL, AT(tokenizer), "tokenizer folder, where it is not in the model" },
    { "--vision", NULL, "PATH", CMD_MODEL | CMD_INSPECT, AT(vision), "the text encoder's vision tower, where it is a file by itself" },
    { "--variant", NULL, "fl2va|ref2va", CMD_MODEL, AT(variant), "which partition the model is, where nothing says it" },
    { "--qkv-layout", NULL, "auto|grouped|interleaved", CMD_MODEL | CMD_INSPECT, AT(qkv_layout),
      "order of the transformer's query, key and value rows [auto]" },
    { "--prompt-file", NULL, "FILE", CMD_REQUEST | CMD_TOKENIZE, AT(prompt_file),
      "the prompt from a file, verbatim; - is standard input" },
    { "--jobs", NULL, "FILE", CMD_GENERATE, AT(jobs),
      "one request a line as JSON (flag names as keys); one result a line on stdout" },
    { "--latents", NULL, "FILE", CMD_DECODE, AT(latents), "latents that generate saved" },
    { "--image", NULL, "FILE", CMD_ENCODE, AT(image), "a picture to encode" },
    { "--video", NULL, "FILE", CMD_ENCODE, AT(video), "a video to encode (its picture)" },
    { "--audio", NULL, "FILE", CMD_ENCODE, AT(audio), "a sound to encode" },
    { "--pixels", NULL, "FILE", CMD_ENCODE, AT(pixels), "pixels U8 [N,H,W,3] of a safetensors file, as they are" },
    { "--waveform", NULL, "FILE", CMD_ENCODE, AT(waveform), "waveform F32 [channels,samples] at 32 kHz of a safetensors file, as it is" },
    { "--save-tensors", NULL, "FILE", CMD_DECODE | CMD_ENCODE, AT(save_tensors), "the result as safetensors" },
    { "--denormalised", NULL, NULL, CMD_DECODE, AT(denormalised), "the latents are VAE-scale, not as they leave the sampler" },
    { "--released", NULL, NULL, CMD_DEMO, AT(released),
      "the released dimensions in sparse files, to plan, inspect and bench: numbers (0.6 GB) in the audio VAE only" },
    { "--random", NULL, NULL, CMD_DEMO, AT(random), "random weights that make every path matter, for tests" },
    { "--runs", NULL, "N", CMD_BENCH, AT(runs), "measured runs after one warm-up [3]" },
    { "--dry-run", NULL, NULL, CMD_GENERATE, AT(dry_run), "plan only" },
    { "--verify", NULL, NULL, CMD_INSPECT, AT(verify), "read everything: values that are not finite, scales that cannot be" },
    { "--yes", "-y", NULL, CMD_GENERATE | CMD_DECODE | CMD_DEMO | CMD_ENCODE, AT(yes), "replace existing files" },
    { "--device", NULL, "auto|cpu|cuda[:N]", CMD_MODEL, AT(device), "where to compute [auto]" },
    { "--attention", NULL, "auto|own|cudnn", CMD_MODEL, AT(attention), "which attention a GPU runs [auto]" },
    { "--no-graphs", NULL, NULL, CMD_MODEL, AT(no_graphs), "a GPU launches operators one by one: the same bits, slower" },
    { "--threads", NULL, "N", CMD_MODEL | CMD_DOCTOR, AT(threads), "processor threads, 1..1024 [all]" },
    { "--isa", NULL, "generic|avx2|avx512|avx512bf16", CMD_MODEL | CMD_DOCTOR, AT(isa), "newest instruction set to use" },
    { "--progress", NULL, "auto|bar|plain|json|none", CMD_GENERATE | CMD_DECODE, AT(progress),
      "how progress is shown on stderr [auto]" },
    { "--json", NULL, NULL, CMD_ALL & ~CMD_HELP, AT(json), "the result as one JSON object on stdout" },
    { "--quiet", "-q", NULL, CMD_ALL & ~CMD_HELP, AT(quiet), "errors only" },
    { "--verbose", "-v", NULL, CMD_ALL & ~CMD_HELP, AT(verbose), "more messages" },
    { "--log-file", NULL, "FILE", CMD_ALL & ~CMD_HELP, AT(log_file), "append messages to a file" },
    { "--man", NULL, NULL, CMD_HELP, AT(man), "the manual page, as roff" },
    { "--completion", NULL, NULL, CMD_HELP, AT(completion), "a completion script for bash" },
};
// clang-format on
const int option_count = (int)(sizeof option_table / sizeof *option_table);

vx_status usage_error(vx_code code, const char *field, const char *format, ...)
{
    vx_status s = { .code = code };
    va_list args;
    va_start(args, format);
    vsnprintf(s.message, sizeof s.message, format, args);
    va_end(args);
    snprintf(s.field, sizeof s.field, "%s", field ? field : "");
    snprintf(s.remedy, sizeof s.remedy, "%s", vx_code_help(code));
    return s;
}

bool field_of_command(const vx_field *f, unsigned commands)
{
    if (commands & CMD_TOKENIZE) return !strcmp(f->name, "prompt");
    if (commands & CMD_DECODE)
        return f->group == VX_GROUP_MEDIA || !strcmp(f->name, "output") || !strcmp(f->name, "precision") ||
               !strncmp(f->name, "vae_", 4);
    if (commands & CMD_DEMO) return !strcmp(f->name, "seed");
    if (commands & CMD_ENCODE) return !strcmp(f->name, "precision");
    if (commands & CMD_BENCH) return f->group == VX_GROUP_REQUEST;
    return commands & (CMD_GENERATE | CMD_PLAN);
}

static const vx_field *find_field(const char *name, unsigned commands)
{
    const vx_field *f;
    for (int i = 0; (f = vx_field_at(i)); i++)
        if (field_of_command(f, commands) && (!strcmp(name, f->flag) || (f->letter && !strcmp(name, f->letter)))) return f;
    return NULL;
}

static const option *find_option(const char *name, unsigned commands)
{
    for (int i = 0; i < option_count; i++)
        if ((option_table[i].commands & commands) &&
            (!strcmp(name, option_table[i].flag) || (option_table[i].letter && !strcmp(name, option_table[i].letter))))
            return &option_table[i];
    return NULL;
}

// The known flag that shares most of its beginning, for a hint.
static const char *nearest(const char *name, unsigned commands)
{
    const char *best = NULL;
    size_t most = 4;
    const vx_field *f;
    for (int i = 0; (f = vx_field_at(i)); i++) {
        size_t n = 0;
        while (name[n] && name[n] == f->flag[n]) n++;
        if (n > most && field_of_command(f, commands)) best = f->flag, most = n;
    }
    for (int i = 0; i < option_count; i++) {
        size_t n = 0;
        while (name[n] && name[n] == option_table[i].flag[n]) n++;
        if (n > most && (option_table[i].commands & commands)) best = option_table[i].flag, most = n;
    }
    return best;
}

static vx_status unknown(const options *o, const char *name)
{
    const char *hint = nearest(name, o->command);
    vx_status s = usage_error(VX_ERR_USAGE, "", "%s: unknown option of vortex %s", name, o->command_name);
    if (hint) snprintf(s.remedy, sizeof s.remedy, "did you mean %s?", hint);
    else snprintf(s.remedy, sizeof s.remedy, "see vortex help %s", o->command_name);
    return s;
}

static vx_status parse_one(options *o, int argc, char **argv, int *i)
{
    char name[64];
    const char *argument = argv[*i], *equals = !strncmp(argument, "--", 2) ? strchr(argument, '=') : NULL,
               *value = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    if (length >= sizeof name) return usage_error(VX_ERR_USAGE, "", "%.40s...: unknown option", argument);
    memcpy(name, argument, length);
    name[length] = 0;
    const vx_field *field = find_field(name, o->command);
    const option *opt = field ? NULL : find_option(name, o->command);
    if (!field && !opt) return unknown(o, name);
    bool is_switch = field ? field->kind == VX_FIELD_SWITCH : !opt->value;
    if (is_switch && value) return usage_error(VX_ERR_USAGE, "", "%s takes no value", name);
    if (!is_switch && !value) {
        if (*i + 1 >= argc) return usage_error(VX_ERR_USAGE, "", "%s needs a value", name);
        value = argv[++*i];
    }
    if (field && o->askeds < MAX_ASKED) o->asked[o->askeds++] = field->name;
    if (field) return vx_request_builder_set(o->builder, field->name, is_switch ? "true" : value);
    if (is_switch) *(bool *)((char *)o + opt->offset) = true;
    else *(const char **)((char *)o + opt->offset) = value;
    return (vx_status){ 0 };
}

static vx_status take_progress(options *o)
{
    static const char *const names[] = { "auto", "bar", "plain", "json", "none" };
    if (!o->progress) return (vx_status){ 0 };
    for (int i = 0; i < 5; i++)
        if (!strcmp(o->progress, names[i])) {
            o->progress_mode = (progress_mode)i;
            return (vx_status){ 0 };
        }
    return usage_error(VX_ERR_VALUE, "progress", "--progress: '%.40s' is none of auto|bar|plain|json|none", o->progress);
}

static bool ends_in(const char *path, const char *ending)
{
    const size_t size = strlen(path), end = strlen(ending);
    return size >= end && !strcmp(path + size - end, ending);
}

vx_status options_parse(options *o, int argc, char **argv)
{
    vx_status s = vx_request_builder_create(&o->builder);
    bool only_arguments = false;
    for (int i = 2; i < argc && !s.code; i++) {
        if (!only_arguments && !strcmp(argv[i], "--")) only_arguments = true;
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1]) s = parse_one(o, argc, argv, &i);
        else if (o->arguments < MAX_ARGUMENTS) o->argument[o->arguments++] = argv[i];
        else s = usage_error(VX_ERR_USAGE, "", "too many arguments");
    }
    if (!s.code) s = take_progress(o);
    // Appended to, a checkpoint or a movie would be damaged.
    if (!s.code && o->log_file &&
        (ends_in(o->log_file, ".safetensors") || ends_in(o->log_file, ".gguf") || ends_in(o->log_file, ".mp4")))
        s = usage_error(VX_ERR_CONFLICT, "log_file", "--log-file: '%s' is no name for messages", o->log_file);
    if (!s.code && o->log_file && !(o->log = fopen(o->log_file, "a")))
        s = usage_error(VX_ERR_OUTPUT, "log_file", "%s: cannot be written: %s", o->log_file, strerror(errno));
    return s;
}

void options_free(options *o)
{
    vx_request_builder_destroy(&o->builder);
    if (o->log) fclose(o->log);
}

vx_status read_text(const char *path, size_t limit, char **text, size_t *size)
{
    FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "rb");
    if (!f) return usage_error(VX_ERR_PROMPT_FILE, "prompt_file", "%s: %s", path, strerror(errno));
    size_t capacity = 4096, used = 0;
    char *data = malloc(capacity + 1);
    while (data) {
        used += fread(data + used, 1, capacity - used, f);
        if (used < capacity || capacity > limit) break;
        char *more = realloc(data, (capacity *= 2) + 1);
        if (!more) free(data);
        data = more;
    }
    bool failed = ferror(f);
    int error = errno;
    if (f != stdin) fclose(f);
    if (!data) return usage_error(VX_ERR_MEMORY, "", "no memory for %s", path);
    vx_status s = { 0 };
    if (failed) s = usage_error(VX_ERR_PROMPT_FILE, "prompt_file", "%s: %s", path, strerror(error));
    else if (used > limit) s = usage_error(VX_ERR_PROMPT_FILE, "prompt_file", "%s: more than %zu bytes", path, limit);
    if (s.code) {
        free(data);
        return s;
    }
    data[used] = 0;
    *text = data;
    *size = used;
    return s;
}
