// From a request to its normal form: every default filled in, every rule checked, in one place. Nothing here needs more of
// the model than its sigma shifts.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/str.h"
#include "pipeline/internal.h"

enum {
    DEFAULT_FRAMES = 124,
    MIN_FRAMES = 22,
    MAX_FRAMES = 362,
    TRAINED_MIN_FRAMES = 107, // 4 s, the shortest that the model card names
    TRAINED_MAX_FRAMES = 345,
    DEFAULT_EVALUATIONS = 49,
    SHORT_EDGE = 768,
    REFERENCE_SHORT_EDGE = 2048,
    CANVAS_PIXELS = 768 * 1344,
    MAX_PIXELS = 4128768, // 2688 x 1536
};

void vx_note(vx_notes *notes, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!notes->quiet) vx_log(VX_LOG_WARNING, "%s", text);
    if (notes->count < VX_MAX_NOTES && (notes->text[notes->count] = vx_strdup(text))) notes->count++;
}

void vx_notes_say(vx_notes *notes)
{
    for (int i = 0; i < notes->count; i++) vx_log(VX_LOG_WARNING, "%s", notes->text[i]);
    notes->quiet = false;
}

void vx_notes_free(vx_notes *notes)
{
    for (int i = 0; i < notes->count; i++) vx_free(notes->text[i]);
    *notes = (vx_notes){ 0 };
}

static const char *const sampler_names[] = { [VX_SAMPLER_EULER] = "euler", [VX_SAMPLER_RES_MULTISTEP] = "res_multistep" };
static const char *const schedule_names[] = { [VX_SCHEDULE_OFFICIAL] = "official",
                                              [VX_SCHEDULE_SIMPLE] = "simple",
                                              [VX_SCHEDULE_BETA] = "beta",
                                              [VX_SCHEDULE_NORMAL] = "normal",
                                              [VX_SCHEDULE_EXPLICIT] = "explicit" };
static const char *const noise_names[] = {
    [VX_NOISE_SGLANG] = "sglang", [VX_NOISE_DIFFUSERS] = "diffusers", [VX_NOISE_COMFYUI] = "comfyui"
};
const char *vx_sampler_name(vx_sampler s)
{
    return sampler_names[s];
}
const char *vx_schedule_name(vx_schedule s)
{
    return schedule_names[s];
}
const char *vx_noise_name(vx_noise n)
{
    return noise_names[n];
}

// Index of a name, 0 for none given.
static vx_status choose(const char *field, const char *value, const char *const *names, int count, int *out)
{
    *out = 0;
    if (!value) return vx_ok();
    for (int i = 0; i < count; i++)
        if (!strcmp(value, names[i])) {
            *out = i;
            return vx_ok();
        }
    return vx_fail_field(VX_ERR_VALUE, field, "%s: '%.60s' is not known", field, value);
}

static vx_status check_prompt(const vx_request *r)
{
    if (!r->prompt && !r->prompt_embeds)
        return vx_fail_field(VX_ERR_REQUIRED, "prompt", "a prompt is required (--prompt TEXT or --prompt-file FILE)");
    if (!r->prompt) return vx_ok();
    size_t size = strlen(r->prompt), bad;
    if (!size) return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt is empty");
    if (size > VX_MAX_PROMPT_BYTES)
        return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt has %zu bytes, at most %d are allowed", size,
                             (int)VX_MAX_PROMPT_BYTES);
    if (!vx_utf8_valid(r->prompt, size, &bad))
        return vx_fail_field(VX_ERR_PROMPT, "prompt", "the prompt is not valid UTF-8 at byte %zu", bad);
    return vx_ok();
}

static vx_status resolve_canvas(vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    int64_t short_edge = r->canvas_short_edge ? r->canvas_short_edge : SHORT_EDGE,
            pixels = r->canvas_max_pixels ? r->canvas_max_pixels : CANVAS_PIXELS;
    if (short_edge < 32 || short_edge > 4096)
        return vx_fail_field(VX_ERR_RANGE, "canvas_short_edge", "canvas_short_edge %lld is not within 32..4096",
                             (long long)short_edge);
    if (pixels < 1024 || pixels > MAX_PIXELS)
        return vx_fail_field(VX_ERR_RANGE, "canvas_max_pixels", "canvas_max_pixels %lld is not within 1024..%d",
                             (long long)pixels, MAX_PIXELS);
    out->canvas_short_edge = short_edge;
    out->canvas_max_pixels = pixels;
    bool sized = r->width || r->height;
    if (sized && r->aspect) return vx_fail_field(VX_ERR_CONFLICT, "aspect", "size and aspect exclude each other");
    if (sized) {
        if (!r->width || !r->height) return vx_fail_field(VX_ERR_REQUIRED, "size", "width and height come together");
        if (r->width < 32 || r->width > 4096 || r->height < 32 || r->height > 4096)
            return vx_fail_field(VX_ERR_RANGE, "size", "size %dx%d: each side must be within 32..4096", r->width, r->height);
        if (r->width % 32 || r->height % 32) {
            int w = (int)(nearbyint(r->width / 32.0) * 32), h = (int)(nearbyint(r->height / 32.0) * 32);
            return vx_remedy(
                vx_fail_field(VX_ERR_RANGE, "size", "size %dx%d: each side must be a multiple of 32", r->width, r->height),
                "use %dx%d", w < 32 ? 32 : w, h < 32 ? 32 : h);
        }
        if (r->width > 4 * r->height || r->height > 4 * r->width)
            return vx_fail_field(VX_ERR_RANGE, "size", "size %dx%d: the ratio must lie within 1:4..4:1", r->width, r->height);
        out->width = r->width;
        out->height = r->height;
    } else {
        double w = 16, h = 9;
        bool anchored = false;
        int64_t anchor_width, anchor_height;
        VX_TRY(vx_conditions_anchor(&out->conditions, &anchored, &anchor_width, &anchor_height));
        if (anchored) w = (double)anchor_width, h = (double)anchor_height;
        char *end;
        if (r->aspect && strcmp(r->aspect, "auto") && strcmp(r->aspect, "adaptive")) {
            w = strtod(r->aspect, &end);
            if (end == r->aspect || *end != ':')
                return vx_fail_field(VX_ERR_VALUE, "aspect", "aspect '%.40s' is not W:H", r->aspect);
            const char *second = end + 1;
            h = strtod(second, &end);
            if (end == second || *end || !(w > 0) || !(h > 0) || !isfinite(w) || !isfinite(h))
                return vx_fail_field(VX_ERR_VALUE, "aspect", "aspect '%.40s' is not W:H", r->aspect);
        }
        int64_t width, height;
        if (!vx_canvas_size(w, h, short_edge, pixels, &width, &height))
            return vx_fail_field(VX_ERR_RANGE, anchored ? "keyframe" : "aspect", "the ratio %g:%g is not within 1:4..4:1", w, h);
        out->width = (int)width;
        out->height = (int)height;
    }
    int64_t area = (int64_t)out->width * out->height;
    if (area > MAX_PIXELS)
        return vx_fail_field(VX_ERR_RANGE, "size", "size %dx%d has %lld pixels, at most %d are allowed", out->width, out->height,
                             (long long)area, MAX_PIXELS);
    if (area > CANVAS_PIXELS)
        vx_note(notes, "%dx%d is larger than the model was trained for (%d pixels)", out->width, out->height, CANVAS_PIXELS);
    return vx_ok();
}

static vx_status resolve_frames(vx_resolved *out, const vx_request *r, vx_notes *notes)
{
    if (r->num_frames && r->seconds != 0)
        return vx_fail_field(VX_ERR_CONFLICT, "seconds", "frames and seconds exclude each other");
    if (r->num_frames < 0 || r->num_frames > MAX_FRAMES)
        return vx_fail_field(VX_ERR_RANGE, "frames", "frames %lld is not within %d..%d", (long long)r->num_frames, MIN_FRAMES,
                             MAX_FRAMES);
    if (r->seconds != 0 && !(r->seconds > 0 && r->seconds < 16))
        return vx_fail_field(VX_ERR_RANGE, "seconds", "seconds %g is not within %.2f..%.2f", r->seconds, MIN_FRAMES / 24.0,
                             MAX_FRAMES / 24.0);
    int64_t asked = r->num_frames     ? r->num_frames
                    : r->seconds != 0 ? (int64_t)nearbyint(r->seconds * VX_NATIVE_FPS)
                                      : DEFAULT_FRAMES;
    out->frames = vx_align_frames(asked > 0 ? asked : 1);
    if (out->frames < MIN_FRAMES || out->frames > MAX_FRAMES)
        return vx_fail_field(VX_ERR_RANGE, r->seconds != 0 ? "seconds" : "frames",
                             "%lld frames become %lld on the 17n+5 lattice, which is not within %d..%d", (long long)asked,
                             (long long)out->frames, MIN_FRAMES, MAX_FRAMES);
    if (out->frames != asked) vx_note(notes, "%lld frames aligned up to %lld (17n+5)", (long long)asked, (long long)out->frames);
    if (out->frames < TRAINED_MIN_FRAMES || out->frames > TRAINED_MAX_FRAMES)
        vx_note(notes, "%lld frames are outside the trained range of %d..%d", (long long)out->frames, TRAINED_MIN_FRAMES,
                TRAINED_MAX_FRAMES);
    return vx_ok();
}

static vx_status resolve_conditions(vx_resolved *out, const vx_request *r)
{
    out->reference_short_edge = r->reference_short_edge ? r->reference_short_edge : REFERENCE_SHORT_EDGE;
    if (out->reference_short_edge < 32 || out->reference_short_edge > 4096)
        return vx_fail_field(VX_ERR_RANGE, "reference_short_edge", "reference_short_edge %lld is not within 32..4096",
                             (long long)r->reference_short_edge);
    return vx_conditions_judge(
        &out->conditions,
        &(vx_condition_rules){ .task = r->task, .given = r->conditions, .count = r->condition_count, .frames = out->frames });
}

static vx_status resolve_sigmas(vx_resolved *out, const vx_request *r, const vx_model_map *map, vx_notes *notes)
{
    int choice;
    VX_TRY(choose("sampler", r->sampler, sampler_names, 2, &choice));
    out->sampler = (vx_sampler)choice;
    VX_TRY(choose("schedule", r->schedule, schedule_names, 4, &choice));
    out->schedule = (vx_schedule)choice;
    const vx_turbo *turbo = &out->turbo;
    const struct {
        const char *field;
        float asked;
        double own;
        float *to;
    } shifts[] = {
        { "shift", r->flow_shift,
          turbo->steps ? (double)turbo->shift
          : map        ? map->flow_shift
                       : 12,
          &out->shift },
        { "audio_shift", r->audio_flow_shift,
          turbo->steps ? (double)turbo->audio_shift
          : map        ? map->audio_flow_shift
                       : 3,
          &out->audio_shift },
    };
    for (int i = 0; i < 2; i++) {
        *shifts[i].to = shifts[i].asked != 0 ? shifts[i].asked : (float)shifts[i].own;
        if (!(*shifts[i].to > 0 && *shifts[i].to <= 100))
            return vx_fail_field(VX_ERR_RANGE, shifts[i].field, "%s %g is not within (0, 100]", shifts[i].field,
                                 (double)*shifts[i].to);
    }
    if (r->evaluations && r->num_inference_steps)
        return vx_fail_field(VX_ERR_CONFLICT, "num_inference_steps", "steps and num_inference_steps exclude each other");
    if (r->evaluations < 0 || r->evaluations > 1000)
        return vx_fail_field(VX_ERR_RANGE, "steps", "steps %d is not within 1..1000", r->evaluations);
    if (r->num_inference_steps && (r->num_inference_steps < 2 || r->num_inference_steps > 1001))
        return vx_fail_field(VX_ERR_RANGE, "num_inference_steps", "num_inference_steps %d is not within 2..1001",
                             r->num_inference_steps);
    if (r->sigma_count) {
        if (r->evaluations || r->num_inference_steps || r->schedule || r->flow_shift != 0 || r->audio_flow_shift != 0)
            return vx_fail_field(VX_ERR_CONFLICT, "sigmas", "sigmas exclude steps, num_inference_steps, schedule and shifts");
        out->schedule = VX_SCHEDULE_EXPLICIT;
        VX_TRY(vx_sigmas_explicit(&out->sigmas, r->sigmas, r->sigma_count, out->shift, out->audio_shift));
    } else {
        const int evaluations = r->evaluations ? r->evaluations : turbo->steps ? turbo->steps : DEFAULT_EVALUATIONS;
        const int points = r->num_inference_steps ? r->num_inference_steps : evaluations + 1;
        if (turbo->list) VX_TRY(vx_turbo_sigmas(out, points));
        else VX_TRY(vx_sigmas_make(&out->sigmas, out->schedule, points, out->shift, out->audio_shift));
        if (out->sigmas.count != points)
            vx_note(notes, "schedule %s has %d distinct sigmas for %d steps: %d evaluations", schedule_names[out->schedule],
                    out->sigmas.count, points - 1, out->sigmas.count - 1);
    }
    out->evaluations = out->sigmas.count - 1;
    const bool two_lists = out->schedule == VX_SCHEDULE_OFFICIAL || out->schedule == VX_SCHEDULE_EXPLICIT || turbo->list;
    out->step = out->sampler != VX_SAMPLER_EULER || !two_lists ? VX_STEP_COMFYUI
                : turbo->steps                                 ? VX_STEP_PLAIN
                                                               : VX_STEP_OFFICIAL;
    return vx_ok();
}

static vx_status resolve_seed(vx_resolved *out, const vx_request *r)
{
    if (r->seed_set && r->seed > INT64_MAX)
        return vx_fail_field(VX_ERR_RANGE, "seed", "seed %llu is not within 0..%lld", (unsigned long long)r->seed,
                             (long long)INT64_MAX);
    out->seed = r->seed;
    out->seed_drawn = !r->seed_set;
    if (r->seed_set) return vx_ok();
    if (getrandom(&out->seed, sizeof out->seed, 0) != (ssize_t)sizeof out->seed)
        return vx_fail_errno(VX_ERR_INTERNAL, errno, "no random seed from the system");
    out->seed &= INT64_MAX;
    return vx_ok();
}

// Half precision is what a GPU decodes pictures with, as the official pipeline does (video VAE specification, 14.1); on the
// processor float32 is faster and the reference's own choice.
static vx_status resolve_precision(vx_resolved *out, const vx_request *r, bool far)
{
    static const char *const precisions[] = { "exact", "float32" }, *const decoders[] = { "auto", "float16", "float32" },
                             *const ropes[] = { "official", "float32" };
    int choice;
    VX_TRY(choose("precision", r->precision, precisions, 2, &choice));
    out->act = choice ? VX_F32 : VX_BF16;
    VX_TRY(choose("vae_precision", r->vae_precision, decoders, 3, &choice));
    out->vae = choice == 1 || (choice == 0 && far && out->act == VX_BF16) ? VX_F16 : VX_F32;
    VX_TRY(choose("vae_rope", r->vae_rope, ropes, 2, &choice));
    out->vae_exact_rope = choice == 1;
    if (r->vae_rope && out->vae == VX_F32)
        return vx_remedy(
            vx_fail_field(VX_ERR_CONFLICT, "vae_rope", "vae_rope belongs to a float16 decoder, and this one is float32"),
            "leave it out, or give --vae-precision float16");
    return vx_ok();
}

// An older caller's struct may be shorter than ours: what it lacks is zero.
static vx_status take_request(vx_request *out, const vx_request *request)
{
    if (!request || !request->struct_size || request->struct_size > sizeof *out)
        return vx_fail(VX_ERR_USAGE, "the request was not initialised with VX_INIT(vx_request)");
    memcpy(out, request, request->struct_size);
    return vx_ok();
}

static vx_status resolve(vx_resolved *out, const vx_request *request, const vx_model_map *map, bool far, vx_notes *notes)
{
    vx_request r = { 0 };
    VX_TRY(take_request(&r, request));
    VX_TRY(check_prompt(&r));
    VX_TRY(resolve_frames(out, &r, notes));
    VX_TRY(resolve_conditions(out, &r));
    VX_TRY(resolve_canvas(out, &r, notes));
    VX_TRY(vx_resolve_loras(out, &r, notes));
    VX_TRY(resolve_sigmas(out, &r, map, notes));
    VX_TRY(resolve_seed(out, &r));
    int choice;
    VX_TRY(choose("noise", r.noise, noise_names, 3, &choice));
    out->noise = (vx_noise)choice;
    VX_TRY(resolve_precision(out, &r, far));
    out->record = r.record_tensors;
    out->latents_only = r.latents_only;
    out->memory_limit = r.memory_limit;
    out->prompt = vx_strdup(r.prompt ? r.prompt : "");
    out->embeds_path = r.prompt_embeds ? vx_strdup(r.prompt_embeds) : NULL;
    if (!out->prompt || (r.prompt_embeds && !out->embeds_path)) return vx_no_memory("for the request");
    return vx_ok();
}

vx_status vx_resolve_decoder(vx_resolved *out, const vx_request *request, bool far)
{
    vx_request r = { 0 };
    if (request) VX_TRY(take_request(&r, request));
    return resolve_precision(out, &r, far);
}

vx_status vx_resolve(vx_resolved *out, const vx_request *request, const vx_model_map *map, bool far, vx_notes *notes)
{
    memset(out, 0, sizeof *out);
    vx_status s = resolve(out, request, map, far, notes);
    if (s.code) vx_resolved_free(out);
    return s;
}

void vx_resolved_free(vx_resolved *resolved)
{
    vx_conditions_free(&resolved->conditions);
    vx_free(resolved->prompt);
    vx_free(resolved->embeds_path);
    for (int i = 0; i < resolved->loras; i++) vx_free(resolved->lora[i].path);
    resolved->loras = 0;
    resolved->prompt = resolved->embeds_path = NULL;
}
