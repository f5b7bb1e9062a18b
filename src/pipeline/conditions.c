// Rules first (from the request alone), then decoding. Roundings are Python's, half to even, in double (nearbyint).
#include "pipeline/conditions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/sha256.h"
#include "media/resize.h"
#include "media/sound.h"
#include "pipeline/source.h"
#include "text/vision.h"
#include "vae/video_encoder.h"

enum {
    MAX_IMAGES = 9,
    MAX_VIDEOS = 3,
    MAX_AUDIOS = 3,
    MAX_REFERENCES = 12,
    MIN_VIDEO_FRAMES = 13,   // two frames at 2 per second
    WHOLE_VIDEO_FRAMES = 22, // shorter ones are encoded as they are and padded
    MODEL_RATE = 32000,
    HOP = 800,
};

static const char *const task_names[] = { "t2va", "i2va", "l2va", "fl2va", "ref2va" };
const char *vx_task_name(vx_task t)
{
    return task_names[t];
}

// ---- the rules ----
static vx_status set_kind(vx_prepared *p, const char *kind)
{
    static const struct {
        const char *name;
        vx_condition_kind kind;
    } kinds[] = { { "image", VX_CONDITION_IMAGE }, { "video", VX_CONDITION_VIDEO }, { "audio", VX_CONDITION_AUDIO } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i].name)) {
            p->kind = kinds[i].kind;
            return vx_ok();
        }
    return vx_fail_field(VX_ERR_VALUE, "ref", "reference kind '%.40s' is none of image, video, audio", kind);
}

static vx_status take(vx_conditions *c, const vx_condition *given, int64_t frames)
{
    vx_prepared *p = &c->item[c->count];
    if (!given->path || !*given->path) return vx_fail_field(VX_ERR_REQUIRED, "conditions", "a condition has no file");
    p->path = vx_strdup(given->path);
    VX_NEED_MEMORY(p->path, "a condition");
    c->count++;
    if (!given->keyframe) {
        p->kind = VX_CONDITION_IMAGE;
        p->frame = -1; // kind not told yet
        return given->kind ? (p->frame = 0, set_kind(p, given->kind)) : vx_ok();
    }
    p->kind = VX_CONDITION_KEYFRAME;
    p->frame = given->frame < 0 ? frames + given->frame : given->frame;
    if (p->frame < 0 || p->frame >= frames)
        return vx_fail_field(VX_ERR_RANGE, "keyframe", "keyframe %lld is not within 0..%lld (or -%lld..-1)",
                             (long long)given->frame, (long long)frames - 1, (long long)frames);
    return vx_ok();
}

// Latent frame that shows a pixel frame (video VAE specification 12).
static int64_t latent_of(int64_t frame)
{
    int64_t clip = frame / 17, rest = frame % 17;
    return 5 * clip + (rest ? (rest + 3) / 4 : 0);
}

static void sort_keyframes(vx_conditions *c)
{
    for (int i = 1; i < c->count; i++)
        for (int j = i; j > 0 && c->item[j].frame < c->item[j - 1].frame; j--) {
            vx_prepared swap = c->item[j];
            c->item[j] = c->item[j - 1];
            c->item[j - 1] = swap;
        }
}

static vx_status judge_task(vx_conditions *c, const char *asked, int keyframes, int references, int64_t frames)
{
    bool first = keyframes && c->item[0].frame == 0, last = keyframes && c->item[c->count - 1].frame == frames - 1;
    c->task = references                ? VX_TASK_REF2VA
              : !keyframes              ? VX_TASK_T2VA
              : keyframes == 1 && first ? VX_TASK_I2VA
              : keyframes == 1 && last  ? VX_TASK_L2VA
                                        : VX_TASK_FL2VA;
    if (!asked) return vx_ok();
    int wanted = -1;
    for (int i = 0; i < 5; i++)
        if (!strcmp(asked, task_names[i])) wanted = i;
    if (wanted < 0) return vx_fail_field(VX_ERR_VALUE, "task", "task '%.60s' is none of t2va, i2va, l2va, fl2va, ref2va", asked);
    // fl2va is the family's name: with one outer keyframe it is reported as what it is.
    if (wanted == (int)c->task || (wanted == VX_TASK_FL2VA && (c->task == VX_TASK_I2VA || c->task == VX_TASK_L2VA)))
        return vx_ok();
    static const char *const legal[] = { "no keyframes and no references", "exactly one keyframe, at frame 0 (--first)",
                                         "exactly one keyframe, at the last frame (--last)",
                                         "one or more keyframes (--first, --last, --keyframe)",
                                         "one or more references (--ref) and no keyframes" };
    return vx_fail_field(VX_ERR_CONFLICT, "task", "task %s takes %s; given were %d keyframes and %d references", asked,
                         legal[wanted], keyframes, references);
}

vx_status vx_conditions_judge(vx_conditions *out, const vx_condition_rules *rules)
{
    int keyframes = 0, references = 0;
    if (rules->count < 0 || (rules->count && !rules->given))
        return vx_fail_field(VX_ERR_VALUE, "conditions", "%d conditions without a list of them", rules->count);
    if (rules->count > VX_MAX_CONDITIONS)
        return vx_fail_field(VX_ERR_RANGE, "conditions", "%d conditions, at most %d", rules->count, VX_MAX_CONDITIONS);
    out->item = rules->count ? vx_alloc_array((size_t)rules->count, sizeof *out->item) : NULL;
    if (rules->count) VX_NEED_MEMORY(out->item, "conditions");
    for (int i = 0; i < rules->count; i++) {
        VX_TRY(take(out, &rules->given[i], rules->frames));
        rules->given[i].keyframe ? keyframes++ : references++;
    }
    if (keyframes && references)
        return vx_fail_field(
            VX_ERR_UNAVAILABLE, "conditions",
            "keyframes together with references are not supported in this version: the partitions are separate models");
    if (keyframes) sort_keyframes(out);
    for (int i = 1; keyframes && i < out->count; i++)
        if (latent_of(out->item[i].frame) == latent_of(out->item[i - 1].frame))
            return vx_fail_field(VX_ERR_CONFLICT, "keyframe", "keyframes %lld and %lld fall on one latent frame",
                                 (long long)out->item[i - 1].frame, (long long)out->item[i].frame);
    if (references > MAX_REFERENCES)
        return vx_fail_field(VX_ERR_RANGE, "ref", "%d references, at most %d", references, MAX_REFERENCES);
    return judge_task(out, rules->task, keyframes, references, rules->frames);
}

static vx_status in_file(const vx_prepared *p, vx_status s)
{
    return s.code && !s.field[0]
               ? (snprintf(s.field, sizeof s.field, "%s", p->kind == VX_CONDITION_KEYFRAME ? "keyframe" : "ref"), s)
               : s;
}

vx_status vx_conditions_anchor(const vx_conditions *c, bool *there, int64_t *width, int64_t *height)
{
    *there = c->count && c->item[0].kind == VX_CONDITION_KEYFRAME;
    if (!*there) return vx_ok();
    vx_source *source = NULL;
    VX_TRY(in_file(&c->item[0], vx_source_open(&source, c->item[0].path)));
    const vx_input_facts *f = vx_source_facts(source);
    *width = f->width;
    *height = f->height;
    vx_status s = f->kind == VX_INPUT_PICTURE
                      ? vx_ok()
                      : vx_fail_field(VX_ERR_INPUT_FORMAT, "keyframe", "%s: a keyframe is a picture", c->item[0].path);
    vx_source_close(&source);
    return s;
}

// ---- decoding ----
static vx_status wrong_ratio(const vx_prepared *p, const vx_input_facts *f)
{
    return vx_fail(VX_ERR_RANGE, "%s: %lldx%lld: the ratio must lie within 1:4..4:1", p->path, (long long)f->width,
                   (long long)f->height);
}

static vx_status room_for(vx_prepared *p, int64_t frames, int64_t width, int64_t height)
{
    size_t bytes;
    bool fits = vx_mul_size((size_t)(width * height * 3), (size_t)frames, &bytes);
    p->pixels = fits ? vx_alloc(bytes) : NULL;
    p->width = width;
    p->height = height;
    VX_NEED_MEMORY(p->pixels, "the pixels of a condition");
    return vx_ok();
}

static vx_status load_keyframe(vx_prepared *p, const vx_source *source, bool anchor, int64_t width, int64_t height)
{
    if (vx_source_facts(source)->kind != VX_INPUT_PICTURE)
        return vx_fail(VX_ERR_INPUT_FORMAT, "%s: a keyframe is a picture", p->path);
    uint8_t *rgb = NULL;
    int64_t w, h;
    VX_TRY(vx_source_picture(source, &rgb, &w, &h));
    vx_status s = room_for(p, 1, width, height);
    if (!s.code)
        s = anchor ? vx_resize(p->pixels, width, height, rgb, w, h, VX_RESIZE_LANCZOS)
                   : vx_resize_cover(p->pixels, width, height, rgb, w, h);
    vx_free(rgb);
    p->frames = p->encoded_frames = 1;
    return s;
}

static int64_t to_32(double v)
{
    return (int64_t)fmax(32, 32 * nearbyint(v / 32));
}

static vx_status load_image(vx_prepared *p, const vx_source *source, int64_t short_edge)
{
    uint8_t *rgb = NULL;
    int64_t w, h;
    VX_TRY(vx_source_picture(source, &rgb, &w, &h));
    double scale = (double)short_edge / (double)vx_min_i64(w, h);
    int64_t to_w = to_32((double)w * scale), to_h = to_32((double)h * scale);
    vx_status s = room_for(p, 1, to_w, to_h);
    if (!s.code) s = vx_resize(p->pixels, to_w, to_h, rgb, w, h, VX_RESIZE_LANCZOS);
    vx_free(rgb);
    p->frames = p->encoded_frames = 1;
    return s;
}

typedef struct collect {
    vx_prepared *p;
    vx_status status;
} collect;

static bool collect_frame(void *user, int64_t slot, int64_t count, const uint8_t *rgb, int64_t width, int64_t height)
{
    collect *c = user;
    size_t bytes = (size_t)(c->p->width * c->p->height) * 3;
    uint8_t *first = c->p->pixels + (size_t)slot * bytes;
    c->status = vx_resize(first, c->p->width, c->p->height, rgb, width, height, VX_RESIZE_LANCZOS);
    for (int64_t i = 1; i < count && !c->status.code; i++) memcpy(first + (size_t)i * bytes, first, bytes);
    return !c->status.code;
}

static vx_status load_video(vx_prepared *p, const vx_source *source, const vx_condition_rules *rules)
{
    const vx_input_facts *f = vx_source_facts(source);
    int64_t width, height, slots = 0;
    if (!vx_canvas_size((double)f->width, (double)f->height, rules->canvas_short_edge, rules->canvas_max_pixels, &width, &height))
        return wrong_ratio(p, f);
    VX_TRY(room_for(p, rules->frames, width, height));
    collect c = { .p = p };
    VX_TRY(vx_source_each_frame(source, rules->frames, collect_frame, &c, &slots));
    VX_TRY(c.status);
    p->frames = vx_min_i64(slots, rules->frames);
    if (p->frames < MIN_VIDEO_FRAMES)
        return vx_fail(VX_ERR_RANGE, "%s: the video has %lld frames at 24 per second, at least %d are needed", p->path,
                       (long long)p->frames, MIN_VIDEO_FRAMES);
    p->encoded_frames = p->frames < WHOLE_VIDEO_FRAMES ? p->frames : (p->frames - 5) / 17 * 17 + 5;
    return vx_ok();
}

// Two channels at 32 kHz, cut at its own rate to the clip's length before the one resampling.
static vx_status load_sound(vx_prepared *p, const vx_source *source, int64_t frames)
{
    float *raw = NULL;
    int64_t channels, samples, rate, most = (int64_t)((double)frames / 24.0 * vx_source_facts(source)->sample_rate);
    VX_TRY(vx_source_sound(source, &raw, &channels, &samples, &rate, most));
    vx_status s = vx_ok();
    p->samples = samples > 0 ? vx_resampled_count(samples, rate, MODEL_RATE) : 0;
    if (p->samples < HOP) // public report P34: a short voice is fine, less than one latent is none
        s = vx_fail(VX_ERR_RANGE, "%s: the sound has %lld samples at 32 kHz, at least %d are needed", p->path,
                    (long long)p->samples, HOP);
    else if (!(p->sound = vx_alloc_array((size_t)p->samples * 2, sizeof *p->sound))) s = vx_no_memory("for a sound");
    for (int64_t c = 0; c < 2 && !s.code; c++)
        s = vx_resample(p->sound + c * p->samples, raw + (channels == 2 ? c * samples : 0), samples, rate, MODEL_RATE);
    vx_free(raw);
    return s;
}

typedef struct totals {
    int images, videos, audios;
    double video_s, audio_s;
} totals;

// One more of a kind, and the seconds of that kind so far.
static vx_status count_kind(const char *path, const char *name, int *count, int most_count, double *sum, double seconds)
{
    const double most = VX_INPUT_MAX_SECONDS * 1.01; // containers round up: public report P10
    if (++*count > most_count) return vx_fail(VX_ERR_RANGE, "more than %d %s", most_count, name);
    *sum += seconds;
    if (*sum <= most) return vx_ok();
    return vx_fail(VX_ERR_RANGE, "%s: %s may last %d seconds in all, these last %.2f", path, name, VX_INPUT_MAX_SECONDS, *sum);
}

// What headers tell, against the limits.
static vx_status judge_facts(totals *t, const vx_prepared *p, const vx_input_facts *f)
{
    bool heard = p->kind == VX_CONDITION_AUDIO || (p->kind == VX_CONDITION_VIDEO && f->sound);
    if (p->kind != VX_CONDITION_AUDIO && (f->width > 4 * f->height || f->height > 4 * f->width)) return wrong_ratio(p, f);
    if (heard && (f->channels < 1 || f->channels > 2))
        return vx_fail(VX_ERR_RANGE, "%s: the sound has %d channels, 1 or 2 are taken", p->path, f->channels);
    double none = 0;
    switch (p->kind) {
    case VX_CONDITION_KEYFRAME: break;
    case VX_CONDITION_IMAGE: return count_kind(p->path, "pictures", &t->images, MAX_IMAGES, &none, 0);
    case VX_CONDITION_VIDEO: return count_kind(p->path, "videos", &t->videos, MAX_VIDEOS, &t->video_s, f->video_s);
    case VX_CONDITION_AUDIO: return count_kind(p->path, "sounds", &t->audios, MAX_AUDIOS, &t->audio_s, f->sound_s);
    }
    return vx_ok();
}

// A kind that was told must be what is there; one that was not is what is there.
static vx_status settle_kind(vx_prepared *p, const vx_input_facts *f)
{
    static const char *const found[] = { "a picture", "a video", "a sound" };
    if (p->kind == VX_CONDITION_KEYFRAME)
        return f->kind == VX_INPUT_PICTURE ? vx_ok()
                                           : vx_fail_field(VX_ERR_INPUT_FORMAT, "keyframe",
                                                           "%s: a keyframe is a picture, this is %s", p->path, found[f->kind]);
    vx_condition_kind there = f->kind == VX_INPUT_PICTURE ? VX_CONDITION_IMAGE
                              : f->kind == VX_INPUT_VIDEO ? VX_CONDITION_VIDEO
                                                          : VX_CONDITION_AUDIO;
    if (p->frame < 0) {
        p->kind = there;
        p->frame = 0;
        return vx_ok();
    }
    if (p->kind == there || (p->kind == VX_CONDITION_AUDIO && f->sound)) return vx_ok();
    return vx_fail_field(VX_ERR_INPUT_FORMAT, "ref", "%s: this is %s", p->path, found[f->kind]);
}

static vx_status load_one(vx_prepared *p, const vx_source *source, const vx_condition_rules *rules, bool anchor, int64_t width,
                          int64_t height)
{
    switch (p->kind) {
    case VX_CONDITION_KEYFRAME: return load_keyframe(p, source, anchor, width, height);
    case VX_CONDITION_IMAGE: return load_image(p, source, rules->reference_short_edge);
    case VX_CONDITION_AUDIO: return load_sound(p, source, rules->frames);
    case VX_CONDITION_VIDEO: break;
    }
    VX_TRY(load_video(p, source, rules));
    return vx_source_facts(source)->sound ? load_sound(p, source, rules->frames) : vx_ok();
}

// What the encoded conditions depend on: the prepared samples, in order, with their kinds.
static void make_key(vx_conditions *c)
{
    vx_sha256 hash;
    vx_sha256_init(&hash);
    for (int i = 0; i < c->count; i++) {
        const vx_prepared *p = &c->item[i];
        const int64_t head[] = { p->kind, p->frame, p->frames, p->height, p->width, p->encoded_frames, p->samples };
        vx_sha256_put(&hash, head, sizeof head);
        if (p->pixels) vx_sha256_put(&hash, p->pixels, (size_t)(p->frames * p->height * p->width) * 3);
        if (p->sound) vx_sha256_put(&hash, p->sound, (size_t)p->samples * 2 * sizeof *p->sound);
    }
    vx_sha256_hex(&hash, c->key);
}

vx_status vx_conditions_load(vx_conditions *c, const vx_condition_rules *rules, int64_t width, int64_t height)
{
    totals t = { 0 };
    vx_source *source[VX_MAX_CONDITIONS] = { NULL };
    vx_status s = vx_ok();
    // Headers of all of them first: limits are judged before anything is decoded.
    for (int i = 0; i < c->count && !s.code; i++) {
        s = in_file(&c->item[i], vx_source_open(&source[i], c->item[i].path));
        if (!s.code) s = settle_kind(&c->item[i], vx_source_facts(source[i]));
        if (!s.code) s = in_file(&c->item[i], judge_facts(&t, &c->item[i], vx_source_facts(source[i])));
    }
    if (!s.code && t.audios && !t.images && !t.videos)
        s = vx_fail_field(VX_ERR_CONFLICT, "ref", "sound alone is no reference: at least one picture or video is needed");
    for (int i = 0; i < c->count && !s.code; i++)
        s = in_file(&c->item[i], load_one(&c->item[i], source[i], rules, i == 0, width, height));
    for (int i = 0; i < c->count; i++) vx_source_close(&source[i]);
    if (!s.code) make_key(c);
    return s;
}

void vx_conditions_free(vx_conditions *c)
{
    for (int i = 0; i < c->count; i++) {
        vx_prepared *p = &c->item[i];
        vx_free(p->path);
        vx_free(p->pixels);
        vx_free(p->sound);
        vx_free(p->latent);
        vx_free(p->audio_latent);
    }
    vx_free(c->item);
    *c = (vx_conditions){ 0 };
}

// ---- views for the networks ----
int64_t vx_prepared_latent_frames(const vx_prepared *p)
{
    return p->pixels ? vx_encoded_frames(p->encoded_frames) : 0;
}
int64_t vx_prepared_audio_frames(const vx_prepared *p)
{
    return vx_ceil_div(p->samples, HOP);
}

void vx_conditions_shown(const vx_conditions *c, vx_shown *out)
{
    static const vx_shown_kind kinds[] = { [VX_CONDITION_KEYFRAME] = VX_SHOWN_KEYFRAME,
                                           [VX_CONDITION_IMAGE] = VX_SHOWN_IMAGE,
                                           [VX_CONDITION_VIDEO] = VX_SHOWN_VIDEO,
                                           [VX_CONDITION_AUDIO] = VX_SHOWN_AUDIO };
    for (int i = 0; i < c->count; i++) {
        const vx_prepared *p = &c->item[i];
        out[i] = (vx_shown){ .kind = kinds[p->kind], .sound = p->kind == VX_CONDITION_VIDEO && p->sound };
        if (p->kind == VX_CONDITION_VIDEO) {
            out[i].sampled_frames = vx_ceil_div(p->frames, VX_SAMPLED_EVERY);
            vx_vision_video_size(out[i].sampled_frames, p->height, p->width, &out[i].height, &out[i].width);
        } else if (p->pixels) vx_vision_picture_size(p->height, p->width, &out[i].height, &out[i].width);
    }
}

void vx_conditions_rows(const vx_conditions *c, vx_condition_rows *out)
{
    for (int i = 0; i < c->count; i++) {
        const vx_prepared *p = &c->item[i];
        out[i] = (vx_condition_rows){ .kind = p->kind,
                                      .frame = p->frame,
                                      .latent_frames = vx_prepared_latent_frames(p),
                                      .latent_height = p->height / 16,
                                      .latent_width = p->width / 16,
                                      .audio_frames = vx_prepared_audio_frames(p) };
    }
}
