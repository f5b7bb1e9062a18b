// The command line: a client of include/vortex/vortex.h and of nothing else of Vortex. Results go to stdout, everything
// else to stderr; errors are printed here, once, and nowhere below.
#ifndef VX_CLI_CLI_H
#define VX_CLI_CLI_H

#include <jansson.h>
#include <stdio.h>

#include "vortex/vortex.h"

// Which command an option belongs to.
typedef enum command_set {
    CMD_GENERATE = 1,
    CMD_DECODE = 2,
    CMD_TOKENIZE = 4,
    CMD_PLAN = 8,
    CMD_INSPECT = 16,
    CMD_BENCH = 32,
    CMD_DOCTOR = 64,
    CMD_DEMO = 128,
    CMD_ENCODE = 256,
    CMD_HELP = 512,
    CMD_MODEL = CMD_GENERATE | CMD_DECODE | CMD_TOKENIZE | CMD_PLAN | CMD_BENCH | CMD_ENCODE,
    CMD_REQUEST = CMD_GENERATE | CMD_PLAN | CMD_BENCH,
    CMD_ALL = 1023,
} command_set;

typedef enum progress_mode { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_NONE } progress_mode;

enum { MAX_ARGUMENTS = 16, MAX_ASKED = 64 };

// Everything that was given. Strings are the arguments' own.
typedef struct options {
    command_set command;
    const char *command_name;
    vx_request_builder *builder;
    const char *model, *text_encoder, *video_vae, *audio_vae, *tokenizer, *vision, *variant, *qkv_layout, *device, *attention;
    const char *prompt_file, *jobs, *latents, *save_tensors, *image, *video, *audio, *pixels, *waveform, *threads, *isa, *runs,
        *log_file, *progress;
    bool yes, json, quiet, verbose, dry_run, denormalised, random, released, no_graphs, verify;
    bool man, completion;
    const char *argument[MAX_ARGUMENTS];
    int arguments;
    const char *asked[MAX_ASKED]; // names of request fields that were given, the first ones
    int askeds;
    progress_mode progress_mode;
    FILE *log;
} options;

typedef struct option {
    const char *flag, *letter;
    const char *value; // as help shows it; NULL = a switch
    unsigned commands;
    size_t offset; // of a const char * or bool in options
    const char *help;
} option;
extern const option option_table[];
extern const int option_count;

// options.c
vx_status options_parse(options *o, int argc, char **argv);
void options_free(options *o);
bool field_of_command(const vx_field *field, unsigned commands);
vx_status read_text(const char *path, size_t limit, char **text, size_t *size); // malloc'ed; "-" is stdin

// session.c: a context and a model for one command
typedef struct session {
    vx_context *context;
    vx_model *model;
} session;
vx_status session_open(session *s, options *o, bool with_model);
void session_close(session *s);
void watch_signals(bool json);     // from the start: until a job is watched, SIGINT, SIGTERM and SIGHUP end the process with 130
void watch_job(vx_job *job);       // they cancel it; a second one ends the process. NULL: none runs now, more may come
void watch_file(const char *path); // a finished file that a second signal removes; NULL: none
const volatile int *watch_bench(void); // the first signal only changes what this points to
bool interrupted(void);
bool hung_up(void); // the terminal went; nobody decided to cancel

// files.c: what is written against everything else that is named, before anything is opened
typedef struct named_file {
    const char *field, *path; // path NULL or "": not given
    bool written;
} named_file;
vx_status check_files(const named_file *files, int count, bool replace);
// And against what is there: with --yes too, no file of a model and no adapter is written over, whatever leads to it.
vx_status spare_models(vx_context *context, const named_file *files, int count);
const char *input_path(const char *path); // "-" is standard input

// report.c
int report_error(const options *o, vx_status s); // prints, gives the exit status
void print_error(const char *where, const vx_status *s);
json_t *error_json(const vx_status *s);           // {code, message, remedy, field}; new reference
char *clean_text(const char *text, bool visible); // valid UTF-8; with `visible` no control characters either. malloc'ed
void put_line(const char *line);                  // a result; a failure is remembered for check_stdout
void put_json(json_t *object);                    // steals the reference
vx_status check_stdout(void);
void print_json(const options *o, const char *json); // as it is with --json, else for people
void print_tree(FILE *to, const json_t *value, int indent);
void on_log(void *user, int level, const char *text);
void on_progress(void *user, const vx_progress *p);
void progress_end(options *o);

// commands
vx_status command_generate(options *o);
vx_status command_plan(options *o);
vx_status command_decode(options *o);
vx_status command_encode(options *o);
vx_status command_tokenize(options *o);
vx_status command_inspect(options *o);
vx_status command_doctor(options *o);
#define BENCH_NAMES \
    "linear, attention, elementwise, text-encoder, denoiser, video-vae, audio-vae, image-encoder, audio-encoder, generate"
vx_status command_bench(options *o);
vx_status take_prompt_file(options *o); // its bytes, verbatim, as the prompt of the builder
vx_status command_demo(options *o);
void print_help(FILE *to, const char *command);
void print_man(FILE *to);
void print_completion(FILE *to);
void print_version(FILE *to);

// A status of the command line's own making.
vx_status usage_error(vx_code code, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));

typedef struct command {
    const char *name;
    command_set id;
    const char *arguments, *help;
    vx_status (*run)(options *o);
} command;
extern const command command_table[];
extern const int command_count;

#endif
