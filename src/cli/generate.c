// generate, plan: requests from flags or a jobs file, one clip after the other on one loaded model.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

enum { MAX_PROMPT = 65536, MAX_JOBS_BYTES = 64 << 20, MAX_PATH = 4096 };

static vx_status none(void)
{
    return (vx_status){ 0 };
}

vx_status take_prompt_file(options *o)
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
    char kept[MAX_PATH + 32]; // latents beside the output while it is being made of them; "": none
} clip;

// A name that nothing has, not even a link: what lies there is somebody's, the latents of a run that was killed perhaps.
static vx_status save_beside(vx_job *job, clip *c)
{
    enum { MOST = 1000 };
    struct stat there;
    for (int n = 1; n <= MOST; n++) {
        char number[16] = "";
        if (n > 1) snprintf(number, sizeof number, "-%d", n);
        snprintf(c->kept, sizeof c->kept, "%s.latents%s.safetensors", c->output, number);
        if (lstat(c->kept, &there) == 0) continue;
        vx_status s = vx_job_save_latents(job, c->kept, false);
        if (s.code != VX_ERR_OUTPUT_EXISTS) return s;
    }
    return usage_error(VX_ERR_OUTPUT_EXISTS, "output", "%s.latents.safetensors and %d more lie there", c->output, MOST - 1);
}

// Sampling takes the time, and decoding may be killed: what it works on is on the disk first. Where that has no room for it the
// clip is made all the same.
static void keep_latents(options *o, vx_job *job, clip *c)
{
    vx_status s = save_beside(job, c);
    if (!s.code) {
        watch_file(c->kept);
        return;
    }
    char line[640];
    snprintf(line, sizeof line, "no latents are kept while the clip is decoded: %s", s.message);
    on_log(o, 1, line);
    c->kept[0] = 0;
}

// A clip that has its name needs them no more, and who cancels wants nothing left; whatever else ends the clip leaves them. wanted:
// because they could not be written where they were asked for.
static void settle_latents(clip *c, const vx_status *clip_status, bool wanted, vx_status *told)
{
    const bool cancelled = clip_status->code == VX_ERR_CANCELLED && !hung_up();
    watch_file(NULL);
    if (!wanted && (!clip_status->code || cancelled)) (void)unlink(c->kept);
    else if (strlen(c->kept) < sizeof told->remedy / 2)
        snprintf(told->remedy, sizeof told->remedy, "the latents are in %s; vortex decode makes the clip from them", c->kept);
    else snprintf(told->remedy, sizeof told->remedy, "the latents are beside the output; vortex decode makes the clip from them");
}

// What can be written is written, whatever else fails: the first error is reported.
static vx_status deliver(options *o, vx_job *job, clip *c, const vx_media_params *media)
{
    vx_status s = vx_job_run(job), first = none();
    if (s.code) return s;
    c->kept[0] = 0;
    if (c->latents[0]) first = vx_job_save_latents(job, c->latents, o->yes);
    const bool wanted = first.code;
    if (c->dump[0]) s = vx_job_dump_tensors(job, c->dump, o->yes);
    if (!first.code) first = s;
    if (!c->output[0]) return first;
    if (!c->latents[0] || wanted) keep_latents(o, job, c);
    s = vx_job_write_mp4(job, c->output, media);
    if (c->kept[0]) settle_latents(c, &s, wanted, wanted ? &first : &s);
    return first.code ? first : s;
}

static double end_of(const json_t *range, size_t which)
{
    return json_number_value(json_is_array(range) ? json_array_get(range, which) : range);
}

// What every adapter came to: one that fits nothing, or at a wrong scale, would show in nothing but the picture.
static void adapter_lines(const json_t *adapters)
{
    for (size_t i = 0; i < json_array_size(adapters); i++) {
        const json_t *a = json_array_get(adapters, i), *scale = json_object_get(a, "scale");
        char line[640];
        snprintf(line, sizeof line, "  %.200s: %lld modules, %lld left out, effective scale %.4g to %.4g (alpha from %s)",
                 json_string_value(json_object_get(a, "name")), (long long)json_integer_value(json_object_get(a, "modules")),
                 (long long)json_integer_value(json_object_get(a, "modules_left_out")), end_of(scale, 0), end_of(scale, 1),
                 scale ? json_string_value(json_object_get(a, "alpha_from")) : "nothing");
        put_line(line);
    }
}

static void summary(const options *o, const clip *c, const char *json)
{
    json_t *r = json_loads(json, 0, NULL);
    if (!r || o->quiet) {
        json_decref(r);
        return;
    }
    const char *name = c->output[0] ? c->output : c->latents[0] ? c->latents : c->dump;
    char line[MAX_PATH + 256];
    snprintf(line, sizeof line, "%s: %lldx%lld, %lld frames (%.2f s), seed %lld, %lld evaluations, %.1f s", name,
             (long long)json_integer_value(json_object_get(r, "width")),
             (long long)json_integer_value(json_object_get(r, "height")),
             (long long)json_integer_value(json_object_get(r, "frames")), json_real_value(json_object_get(r, "seconds")),
             (long long)json_integer_value(json_object_get(r, "seed")),
             (long long)json_integer_value(json_object_get(r, "evaluations")),
             json_real_value(json_object_get(json_object_get(r, "timings_s"), "total")));
    put_line(line);
    adapter_lines(json_object_get(r, "adapters"));
    json_decref(r);
}

static vx_status name_clip(clip *c, const vx_delivery *d, int index)
{
    int outputs = d->outputs ? d->outputs : 1;
    vx_status s = numbered(c->output, d->output, index, outputs, "output");
    if (!s.code) s = numbered(c->latents, d->save_latents, index, outputs, "save_latents");
    if (!s.code) s = numbered(c->dump, d->dump_tensors, index, outputs, "dump_tensors");
    return s;
}

// No picture, video or sound that the clip is made from is written over.
static vx_status check_conditions(const options *o, const clip *c, const vx_request *r)
{
    for (int i = 0; i < r->condition_count; i++) {
        const named_file files[] = {
            { r->conditions[i].keyframe ? "keyframe" : "ref", r->conditions[i].path, false },
            { "output", c->output, true },
            { "save_latents", c->latents, true },
            { "dump_tensors", c->dump, true },
        };
        vx_status s = check_files(files, (int)(sizeof files / sizeof *files), o->yes);
        if (s.code) return s;
    }
    return none();
}

// Nor any adapter.
static vx_status check_loras(const options *o, const clip *c, const vx_request *r)
{
    for (int i = 0; i < r->lora_count; i++) {
        const named_file files[] = {
            { "lora", r->loras[i].path, false },
            { "output", c->output, true },
            { "save_latents", c->latents, true },
            { "dump_tensors", c->dump, true },
        };
        vx_status s = check_files(files, (int)(sizeof files / sizeof *files), o->yes);
        if (s.code) return s;
    }
    return none();
}

// What the names and the seed alone can rule out, for all clips, before anything is opened.
static vx_status check_clips(const options *o, clip *c, const vx_request_builder *builder)
{
    const vx_request *r = vx_request_builder_request(builder);
    const vx_delivery *d = vx_request_builder_delivery(builder);
    if (!d->output && !d->save_latents && !d->dump_tensors) {
        vx_status missing = usage_error(VX_ERR_REQUIRED, "output", "no output was named");
        snprintf(missing.remedy, sizeof missing.remedy, "give --output FILE.mp4 (or --save-latents, --dump-tensors)");
        return missing;
    }
    if (r->seed_set && d->outputs > 1 && r->seed > INT64_MAX - (uint64_t)(d->outputs - 1))
        return usage_error(VX_ERR_RANGE, "seed", "the last of %d outputs would have a seed beyond %lld", d->outputs,
                           (long long)INT64_MAX);
    for (int i = 0; i < (d->outputs ? d->outputs : 1); i++) {
        vx_status s = name_clip(c, d, i);
        if (s.code) return s;
        size_t size = strlen(c->output);
        if (size && strcmp(c->output, "-") && (size < 5 || strcmp(c->output + size - 4, ".mp4"))) {
            s = usage_error(VX_ERR_VALUE, "output", "'%s': only .mp4 files are written", c->output);
            snprintf(s.remedy, sizeof s.remedy, "name the output something.mp4");
            return s;
        }
        const named_file files[] = {
            { "prompt_file", o->prompt_file, false }, { "jobs", o->jobs, false },    { "prompt_embeds", r->prompt_embeds, false },
            { "log_file", o->log_file, false },       { "output", c->output, true }, { "save_latents", c->latents, true },
            { "dump_tensors", c->dump, true },
        };
        s = check_files(files, (int)(sizeof files / sizeof *files), o->yes);
        if (!s.code) s = check_conditions(o, c, r);
        if (!s.code) s = check_loras(o, c, r);
        if (s.code) return s;
    }
    return none();
}

static vx_status one_clip(options *o, session *s, const vx_request *request, const vx_media_params *media, clip *c,
                          uint64_t *seed)
{
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = on_progress, .user = o };
    const named_file files[] = { { "output", c->output, true },
                                 { "save_latents", c->latents, true },
                                 { "dump_tensors", c->dump, true } };
    vx_job *job = NULL;
    char *json = NULL;
    vx_status status = spare_models(s->context, files, (int)(sizeof files / sizeof *files));
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
        if (o->json || o->jobs) put_line(json);
        else summary(o, c, json);
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
    request.record_tensors = d->dump_tensors;
    request.latents_only = !d->output;
    media.replace = o->yes;
    clip *c = calloc(1, sizeof *c);
    if (!c) return usage_error(VX_ERR_MEMORY, "", "no memory for file names");
    vx_status status = check_clips(o, c, builder);
    if (!status.code && !s->model) status = session_open(s, o, true);
    int done = 0;
    for (int i = 0; i < outputs && !status.code && !interrupted(); i++) {
        uint64_t seed;
        status = name_clip(c, d, i);
        if (!status.code) status = one_clip(o, s, &request, &media, c, &seed);
        if (status.code) break;
        done++;
        request.seed_set = true;
        request.seed = (seed + 1) & INT64_MAX;
    }
    free(c);
    // A signal that came when the last clip had its name already cancelled nothing.
    if (!status.code && done < outputs) status = usage_error(VX_ERR_CANCELLED, "", "cancelled");
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
    char where[32];
    snprintf(where, sizeof where, "job %d: ", number);
    print_error(where, &status);
    put_json(json_pack("{s:i, s:o}", "job", number, "error", error_json(&status)));
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
    if (o->jobs && o->prompt_file && !strcmp(o->jobs, "-") && !strcmp(o->prompt_file, "-"))
        return usage_error(VX_ERR_CONFLICT, "jobs", "--jobs and --prompt-file cannot both be standard input");
    vx_status status = take_prompt_file(o), first = none();
    if (status.code) return status;
    session s = { 0 };
    if (o->jobs) status = session_open(&s, o, true);
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
