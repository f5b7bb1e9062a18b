// The smaller commands.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static vx_status none(void)
{
    return (vx_status){ 0 };
}

static vx_status no_arguments(const options *o)
{
    return o->arguments ? usage_error(VX_ERR_USAGE, "", "'%.60s': vortex %s takes options only", o->argument[0], o->command_name)
                        : none();
}

static vx_status one_argument(const options *o, const char *what)
{
    if (o->arguments == 1) return none();
    return usage_error(VX_ERR_USAGE, "", "vortex %s takes one %s, %d were given", o->command_name, what, o->arguments);
}

static void print_output_json(const char *path)
{
    char *clean = clean_text(path, false);
    put_json(json_pack("{s:s}", "output", clean ? clean : ""));
    free(clean);
}

static vx_status decode_to(options *o, vx_job *job)
{
    vx_media_params media = *vx_request_builder_media(o->builder);
    const char *output = vx_request_builder_delivery(o->builder)->output;
    media.replace = o->yes;
    vx_status s = output ? vx_job_check_mp4(job, output, &media) : none();
    if (!s.code && o->save_tensors) s = vx_job_save_tensors(job, o->save_tensors, o->yes);
    if (!s.code && output) s = vx_job_write_mp4(job, output, &media);
    return s;
}

vx_status command_decode(options *o)
{
    vx_status status = no_arguments(o);
    const char *output = vx_request_builder_delivery(o->builder)->output;
    if (!status.code && !o->latents) status = usage_error(VX_ERR_REQUIRED, "latents", "no latents were named (--latents FILE)");
    if (!status.code && !output && !o->save_tensors)
        status = usage_error(VX_ERR_REQUIRED, "output", "no output was named (--output FILE.mp4 or --save-tensors FILE)");
    const named_file files[] = {
        { "latents", o->latents, false },
        { "log_file", o->log_file, false },
        { "output", output, true },
        { "save_tensors", o->save_tensors, true },
    };
    if (!status.code) status = check_files(files, (int)(sizeof files / sizeof *files), o->yes);
    if (status.code) return status;
    session s = { 0 };
    vx_job *job = NULL;
    char *json = NULL;
    vx_job_callbacks callbacks = { VX_INIT(vx_job_callbacks), .progress = on_progress, .user = o };
    status = session_open(&s, o, true);
    if (!status.code) status = spare_models(s.context, files, (int)(sizeof files / sizeof *files));
    if (!status.code)
        status = vx_job_from_latents(s.model, input_path(o->latents), o->denormalised, vx_request_builder_request(o->builder),
                                     &callbacks, &job);
    if (!status.code) {
        watch_job(job);
        status = decode_to(o, job);
        watch_job(NULL);
        progress_end(o);
    }
    if (!status.code) status = vx_job_result(job, &json);
    if (!status.code && o->json) put_line(json);
    else if (!status.code && !o->quiet) put_line(output ? output : o->save_tensors);
    vx_text_free(json);
    vx_job_destroy(&job);
    session_close(&s);
    return status;
}

vx_status command_encode(options *o)
{
    vx_status status = no_arguments(o);
    if (!status.code && !o->save_tensors)
        status = usage_error(VX_ERR_REQUIRED, "save_tensors", "no output was named (--save-tensors FILE)");
    const named_file files[] = {
        { "image", o->image, false },
        { "video", o->video, false },
        { "audio", o->audio, false },
        { "pixels", o->pixels, false },
        { "waveform", o->waveform, false },
        { "log_file", o->log_file, false },
        { "save_tensors", o->save_tensors, true },
    };
    if (!status.code) status = check_files(files, (int)(sizeof files / sizeof *files), o->yes);
    session s = { 0 };
    if (!status.code) status = session_open(&s, o, true);
    if (!status.code) status = spare_models(s.context, files, (int)(sizeof files / sizeof *files));
    if (!status.code)
        status = vx_encode(s.model,
                           &(vx_encode_params){ VX_INIT(vx_encode_params), .image = o->image, .video = o->video,
                                                .audio = o->audio, .pixels = o->pixels, .waveform = o->waveform },
                           o->save_tensors, o->yes);
    if (!status.code && o->json) print_output_json(o->save_tensors);
    else if (!status.code && !o->quiet) put_line(o->save_tensors);
    session_close(&s);
    return status;
}

vx_status command_tokenize(options *o)
{
    const char *prompt = vx_request_builder_request(o->builder)->prompt;
    char *text = NULL;
    size_t size = prompt ? strlen(prompt) : 0;
    vx_status status = none();
    if ((prompt != NULL) + (o->prompt_file != NULL) + o->arguments != 1)
        return usage_error(VX_ERR_USAGE, "prompt",
                           "vortex tokenize takes one text: --prompt TEXT, --prompt-file FILE, or an argument");
    if (o->prompt_file) status = read_text(o->prompt_file, 64 << 20, &text, &size);
    else if (o->arguments) prompt = o->argument[0], size = strlen(prompt);
    if (status.code) return status;
    session s = { 0 };
    int32_t *ids = NULL;
    int64_t count = 0;
    status = session_open(&s, o, true);
    if (!status.code) status = vx_model_tokenize(s.model, text ? text : prompt, size, &ids, &count);
    if (!status.code) {
        fputs(o->json ? "{\"count\":" : "", stdout);
        if (o->json) printf("%lld,\"ids\":[", (long long)count);
        for (int64_t i = 0; i < count; i++) printf("%s%d", i ? (o->json ? "," : " ") : "", (int)ids[i]);
        puts(o->json ? "]}" : "");
    }
    vx_ids_free(ids);
    session_close(&s);
    free(text);
    return status;
}

vx_status command_inspect(options *o)
{
    vx_status status = one_argument(o, "file or folder");
    if (status.code) return status;
    session s = { 0 };
    char *json = NULL;
    status = session_open(&s, o, false);
    vx_status problem = { 0 };
    if (!status.code)
        status = vx_inspect_with(s.context,
                                 &(vx_inspect_params){ VX_INIT(vx_inspect_params), .path = input_path(o->argument[0]),
                                                       .verify = o->verify, .vision = o->vision, .qkv_layout = o->qkv_layout },
                                 &json, &problem);
    if (!status.code) {
        print_json(o, json);
        status.code = problem.code; // told already; the exit status is its class
    }
    vx_text_free(json);
    session_close(&s);
    return status;
}

vx_status command_doctor(options *o)
{
    vx_status status = no_arguments(o);
    if (status.code) return status;
    session s = { 0 };
    char *json = NULL;
    status = session_open(&s, o, false);
    if (!status.code) status = vx_doctor(s.context, &json);
    if (!status.code) print_json(o, json);
    vx_text_free(json);
    session_close(&s);
    return status;
}

// Which fields of a request a bench measures by; of one that is not listed, all.
static const struct {
    const char *name, *fields;
} workloads[] = {
    { "linear", "" },
    { "attention", "" },
    { "elementwise", "" },
    { "image-encoder", "" },
    { "audio-encoder", "" },
    { "text-encoder",
      " prompt first last keyframe ref conditions task size aspect frames seconds canvas_short_edge canvas_max_pixels "
      "reference_short_edge precision " },
    { "video-vae", " size aspect frames seconds canvas_short_edge canvas_max_pixels seed precision vae_precision vae_rope " },
    { "audio-vae", " frames seconds seed precision " },
};

static bool names(const char *fields, const char *name)
{
    char spaced[64];
    snprintf(spaced, sizeof spaced, " %s ", name);
    return strstr(fields, spaced) != NULL;
}

static vx_status check_workload(const options *o)
{
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        if (strcmp(o->argument[0], workloads[i].name) != 0) continue;
        const char *idle = o->prompt_file && !names(workloads[i].fields, "prompt") ? "prompt_file" : NULL;
        for (int k = 0; k < o->askeds && !idle; k++)
            if (!names(workloads[i].fields, o->asked[k])) idle = o->asked[k];
        if (idle) return usage_error(VX_ERR_CONFLICT, idle, "bench %s does not depend on %s", workloads[i].name, idle);
    }
    return (vx_status){ 0 };
}

vx_status command_bench(options *o)
{
    vx_status status = one_argument(o, "name (" BENCH_NAMES ")");
    if (!status.code) status = check_workload(o);
    if (!status.code) status = take_prompt_file(o);
    if (status.code) return status;
    char *end = NULL, *json = NULL;
    long runs = o->runs ? strtol(o->runs, &end, 10) : 0;
    if (o->runs && (!*o->runs || *end || runs < 1 || runs > 1000))
        return usage_error(VX_ERR_RANGE, "runs", "--runs: '%.40s' is not within 1..1000", o->runs);
    vx_request request = *vx_request_builder_request(o->builder);
    session s = { 0 };
    status = session_open(&s, o, o->model || getenv("VORTEX_MODEL"));
    if (!status.code)
        status = vx_bench(s.context,
                          &(vx_bench_params){ VX_INIT(vx_bench_params), .what = o->argument[0], .model = s.model,
                                              .request = &request, .runs = (int)runs, .device = o->device,
                                              .attention = o->attention, .no_graphs = o->no_graphs, .cancelled = watch_bench() },
                          &json);
    if (!status.code) put_line(json); // always JSON: it is for machines
    vx_text_free(json);
    session_close(&s);
    return status;
}

vx_status command_demo(options *o)
{
    vx_status status = one_argument(o, "folder");
    if (status.code) return status;
    const vx_request *r = vx_request_builder_request(o->builder);
    session s = { 0 };
    status = session_open(&s, o, false);
    if (!status.code)
        status = vx_demo_model_write(s.context, o->argument[0],
                                     &(vx_demo_model_params){ VX_INIT(vx_demo_model_params), .random = o->random,
                                                              .released = o->released, .seed = r->seed, .replace = o->yes });
    if (!status.code && o->json) printf("{\"output\":\"demo-model\",\"random\":%s}\n", o->random ? "true" : "false");
    else if (!status.code && !o->quiet) puts(o->argument[0]);
    session_close(&s);
    return status;
}
