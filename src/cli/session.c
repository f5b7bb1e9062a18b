// A context and a model for one command, and what signals do to the job that runs.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static vx_job *volatile current;
static const char *volatile passing; // a finished file that only lasts until the job ends
static volatile sig_atomic_t signals, jobs_began, as_json, hang_ups;

static void say(int fd, const char *text)
{
    ssize_t ignored = write(fd, text, strlen(text)); // there is nobody left to tell
    (void)ignored;
}

// The first signal cancels the job: it ends within one operator, in order. Before the first job there is nothing to end in
// order, and the second signal does not wait.
static void on_signal(int number)
{
    signals++;
    hang_ups += number == SIGHUP;
    if (signals > 1 || !jobs_began) {
        vx_abandon_outputs();
        if (passing && !hang_ups) (void)unlink(passing);
        say(STDERR_FILENO, "vortex: error VX-8001: cancelled.\n");
        if (as_json)
            say(STDOUT_FILENO, "{\"error\":{\"code\":\"VX-8001\",\"message\":\"cancelled\",\"remedy\":\"\",\"field\":\"\"}}\n");
        _exit(130);
    }
    vx_job *job = current;
    if (job) vx_job_cancel(job);
}

void watch_file(const char *path)
{
    passing = path;
}

bool hung_up(void)
{
    return hang_ups > 0;
}

bool interrupted(void)
{
    return signals > 0;
}

void watch_signals(bool json)
{
    as_json = json;
    struct sigaction action = { .sa_handler = on_signal }, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    // nohup asks for SIGHUP to be ignored.
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

const volatile int *watch_bench(void)
{
    jobs_began = 1;
    return &signals;
}

void watch_job(vx_job *job)
{
    current = job;
    if (job) jobs_began = 1;
    if (job && signals) vx_job_cancel(job);
}

static vx_status threads_of(const options *o, int *threads)
{
    char *end;
    *threads = 0;
    if (!o->threads) return (vx_status){ 0 };
    long v = strtol(o->threads, &end, 10);
    if (!*o->threads || *end) return usage_error(VX_ERR_VALUE, "threads", "--threads: '%.40s' is not a number", o->threads);
    if (v < 1 || v > 1024) return usage_error(VX_ERR_RANGE, "threads", "--threads: '%.40s' is not within 1..1024", o->threads);
    *threads = (int)v;
    return (vx_status){ 0 };
}

vx_status session_open(session *s, options *o, bool with_model)
{
    int threads;
    vx_status status = threads_of(o, &threads);
    if (status.code) return status;
    static const char *const levels[] = { "generic", "avx2", "avx512", "avx512bf16" };
    bool known = !o->isa;
    for (int i = 0; i < 4; i++) known = known || !strcmp(o->isa, levels[i]);
    if (!known) return usage_error(VX_ERR_VALUE, "isa", "--isa: '%.40s' is none of generic|avx2|avx512|avx512bf16", o->isa);
    status = vx_context_create(&s->context, &(vx_context_params){ VX_INIT(vx_context_params), .log = on_log, .log_user = o,
                                                                  .threads = threads, .isa = o->isa });
    if (status.code || !with_model) return status;
    const char *path = o->model ? o->model : getenv("VORTEX_MODEL");
    return vx_model_open(s->context, &s->model,
                         &(vx_model_params){ VX_INIT(vx_model_params), .path = path, .text_encoder = o->text_encoder,
                                             .video_vae = o->video_vae, .audio_vae = o->audio_vae, .tokenizer = o->tokenizer,
                                             .vision = o->vision, .variant = o->variant, .qkv_layout = o->qkv_layout,
                                             .device = o->device, .attention = o->attention, .no_graphs = o->no_graphs });
}

void session_close(session *s)
{
    vx_model_close(&s->model);
    vx_context_destroy(&s->context);
}
