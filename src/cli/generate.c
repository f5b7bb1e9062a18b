// generate, plan: requests from flags or a jobs file, one clip after the other on one loaded model.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { MAX_PROMPT = 65536, MAX_JOBS_BYTES = 64 << 20, MAX_PATH = 4096 };

static vx_status none(void)
{
    return (vx_status){ 0 };
}

// The prompt file's bytes, verbatim, as the prompt of the builder.
static vx_status take_prompt_file(options *o)
{
    if (!o->prompt_file) return none();
    if (vx_request_builder_request(o->builder)->prompt)
        return usage_error(VX_ERR_CONFLICT, "prompt_file", "--prompt and --prompt-file exclude each other");
    char *text;
    size_t size;
    vx_status s = read_text(o->prompt_file, MAX_PROMPT, &text, &size);
    if (s.code) return s;
    if (strlen(text) != size) s = usage_error(VX_ERR_PROMPT, "prompt", "%s: the prompt holds a zero byte", o->prompt_file);
    else s = vx_request_builder_set(o->builder, "prompt", text);
    free(text);
    return s;
}

// The only %d of a name becomes the number of the clip.
static vx_status numbered(char out[MAX_PATH], const char *name, int index, int outputs, const char *field)
{
    if (!name) {
        out[0] = 0;
        return none();
    }
    const char *mark = strstr(name, "%d");
    int n;
    if (outputs > 1 && !mark)
        return usage_error(VX_ERR_VALUE, field, "%s: with --outputs the name needs %%d for the number of the clip", name);
    if (mark) n = snprintf(out, MAX_PATH, "%.*s%d%s", (int)(mark - name), name, index, mark + 2);
    else n = snprintf(out, MAX_PATH, "%s", name);
    if (n >= MAX_PATH) return usage_error(VX_ERR_VALUE, field, "the file name is too long");
    return none();
}

typedef struct clip {
    char output[MAX_PATH], latents[MAX_PATH], dump[MAX_PATH];
} clip;

// Whatever fails after sampling leaves the latents on disk: they are what took the time.
static vx_status rescue(options *o, vx_job *job, const clip *c, vx_status failed)
{
    char path[MAX_PATH + 32];
    if (c->latents[0] || failed.code == VX_ERR_CANCELLED) return failed;
    snprintf(path, sizeof path, "%s.latents.safetensors", c->output);
    vx_status s = vx_job_save_latents(job, path, true);
    if (s.code) on_log(o, 1, s.message);
    else snprintf(failed.remedy, sizeof failed.remedy, "the latents are in %.120s; vortex decode makes the clip from them", path);
    return failed;
}

static vx_status deliver(options *o, vx_job *job, const clip *c, const vx_media_params *media)
{
    vx_status s = vx_job_run(job);
    if (!s.code && c->latents[0]) s = vx_job_save_latents(job, c->latents, o->yes);
    if (!s.code && c->dump[0]) s = vx_job_dump_tensors(job, c->dump, o->yes);
    if (s.code || !c->output[0]) return s;
    s = vx_job_write_mp4(job, c->output, media);
    return s.code ? rescue(o, job, c, s) : s;
}

static void summary(const options *o, const clip *c, const char *json)
{
    json_t *r = json_loads(json, 0, NULL);
    if (!r || o->quiet) {
        json_decref(r);
        return;
    }
    const char *name = c->output[0] ? c->output : c->latents[0] ? c->latents : c->dump;
    printf("%s: %lldx%lld, %lld frames (%.2f s), seed %lld, %lld evaluations, %.1f s\n", name,
           (long long)json_integer_value(json_object_get(r, "width")),
           (long long)json_integer_value(json_object_get(r, "height")),
           (long long)json_integer_value(json_object_get(r, "frames")), json_real_value(json_object_get(r, "seconds")),
           (long long)json_integer_value(json_object_get(r, "seed")),
           (long long)json_integer_value(json_object_get(r, "evaluations")),
           json_real_value(json_object_get(json_object_get(r, "timings_s"), "total")));
    json_decref(r);
}

// Existing files are found before anything is computed.
static vx_status check_files(const options *o, const clip *c)
{
    const char *const names[] = { c->latents, c->dump };
    for (int i = 0; i < 2 && !o->yes; i++) {
        FILE *f = names[i][0] ? fopen(names[i], "rb") : NULL;
        if (!f) continue;
        fclose(f);
        vx_status s = usage_error(VX_ERR_OUTPUT_EXISTS, i ? "dump_tensors" : "save_latents", "%s: exists already", names[i]);
        snprintf(s.remedy, sizeof s.remedy, "use another name, or -y to replace it");
        return s;
    }
    return none();
}

static vx_status one_clip(options *o, session *s, const vx_request *request, const vx_media_params *media, const clip *c,
                          uint64_t *seed)
{
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = on_progress, .user = o };
    vx_job *job = NULL;
    char *json = NULL;
    vx_status status = check_files(o, c);
    if (!status.code) status = vx_job_create(s->model, request, &callbacks, &job);
    if (status.code) return status;
    *seed = vx_job_seed(job);
    watch_job(job);
    if (c->output[0]) status = vx_job_check_mp4(job, c->output, media);
    if (!status.code) status = deliver(o, job, c, media);
    watch_job(NULL);
    progress_end(o);
    if (!status.code) status = vx_job_result(job, &json);
    if (!status.code) {
        if (o->json || o->jobs) puts(json);
        else summary(o, c, json);
        fflush(stdout);
    }
    vx_text_free(json);
    vx_job_destroy(&job);
    return status;
}

static vx_status all_clips(options *o, session *s, const vx_request_builder *builder)
{
    vx_request request = *vx_request_builder_request(builder);
    vx_media_params media = *vx_request_builder_media(builder);
    const vx_delivery *d = vx_request_builder_delivery(builder);
    int outputs = d->outputs ? d->outputs : 1;
    if (!d->output && !d->save_latents && !d->dump_tensors) {
        vx_status missing = usage_error(VX_ERR_REQUIRED, "output", "no output was named");
        snprintf(missing.remedy, sizeof missing.remedy, "give --output FILE.mp4 (or --save-latents, --dump-tensors)");
        return missing;
    }
    request.record_tensors = d->dump_tensors;
    request.latents_only = !d->output;
    media.replace = o->yes;
    clip *c = calloc(1, sizeof *c);
    if (!c) return usage_error(VX_ERR_MEMORY, "", "no memory for file names");
    vx_status status = none();
    for (int i = 0; i < outputs && !status.code && !interrupted(); i++) {
        uint64_t seed;
        status = numbered(c->output, d->output, i, outputs, "output");
        if (!status.code) status = numbered(c->latents, d->save_latents, i, outputs, "save_latents");
        if (!status.code) status = numbered(c->dump, d->dump_tensors, i, outputs, "dump_tensors");
        if (!status.code) status = one_clip(o, s, &request, &media, c, &seed);
        if (status.code) break;
        request.seed_set = true;
        request.seed = (seed + 1) & INT64_MAX;
    }
    free(c);
    if (!status.code && interrupted()) status = usage_error(VX_ERR_CANCELLED, "", "cancelled");
    return status;
}

// One line: flags of the command line are the defaults of every job. A bad line is reported in its place; the others run.
static vx_status one_line(options *o, session *s, const char *line, size_t size, int number)
{
    vx_request_builder *b = NULL;
    vx_status status = vx_request_builder_create(&b);
    if (!status.code) status = vx_request_builder_copy(b, o->builder);
    if (!status.code) status = vx_request_builder_json(b, line, size);
    if (!status.code) status = all_clips(o, s, b);
    vx_request_builder_destroy(&b);
    if (!status.code) return status;
    char code[16];
    snprintf(code, sizeof code, "VX-%04d", (int)status.code);
    fprintf(stderr, "vortex: error %s: job %d: %s. %s\n", code, number, status.message, status.remedy);
    json_t *e = json_pack("{s:i, s:{s:s, s:s, s:s, s:s}}", "job", number, "error", "code", code, "message", status.message,
                          "remedy", status.remedy, "field", status.field);
    if (e) json_dumpf(e, stdout, JSON_COMPACT);
    puts("");
    fflush(stdout);
    json_decref(e);
    return status;
}

static vx_status run_jobs(options *o, session *s, vx_status *first)
{
    char *text;
    size_t size;
    vx_status status = read_text(o->jobs, MAX_JOBS_BYTES, &text, &size);
    if (status.code) return status;
    int number = 0;
    for (char *line = text, *end = text + size; line < end && !interrupted();) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
        size_t blank = strspn(line, " \t\r\n");
        number++;
        if (line + blank < stop) {
            status = one_line(o, s, line, (size_t)(stop - line), number);
            if (status.code && !first->code) *first = status;
        }
        line = stop + 1;
    }
    free(text);
    return interrupted() ? usage_error(VX_ERR_CANCELLED, "", "cancelled") : none();
}

vx_status command_generate(options *o)
{
    if (o->arguments) return usage_error(VX_ERR_USAGE, "", "'%.60s': generate takes options only", o->argument[0]);
    if (o->dry_run) return command_plan(o);
    vx_status status = take_prompt_file(o), first = none();
    if (status.code) return status;
    session s = { 0 };
    status = session_open(&s, o, true);
    if (!status.code) status = o->jobs ? run_jobs(o, &s, &first) : all_clips(o, &s, o->builder);
    session_close(&s);
    if (status.code || !first.code) return status;
    first.message[0] = 0; // told already, line by line
    return first;
}

// ---- plan ----
vx_status command_plan(options *o)
{
    if (o->arguments) return usage_error(VX_ERR_USAGE, "", "'%.60s': plan takes options only", o->argument[0]);
    vx_status status = take_prompt_file(o);
    if (status.code) return status;
    session s = { 0 };
    char *json = NULL;
    vx_request request = *vx_request_builder_request(o->builder);
    const vx_delivery *d = vx_request_builder_delivery(o->builder);
    request.latents_only = !d->output && (d->save_latents || d->dump_tensors);
    status = session_open(&s, o, true);
    if (!status.code) status = vx_plan_json(s.model, &request, &json);
    if (!status.code) print_json(o, json);
    vx_text_free(json);
    session_close(&s);
    return status;
}
