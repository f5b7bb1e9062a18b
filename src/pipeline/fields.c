// The table of request fields. Names are the field's own; aliases are what other programs of the field call the same thing.
#include "pipeline/fields.h"

#include <string.h>

#define REQUEST(member)  offsetof(vx_request, member)
#define MEDIA(member)    offsetof(vx_media_params, member)
#define DELIVERY(member) offsetof(vx_delivery, member)

#define DISTILLED "the released weights are guidance-distilled: one evaluation with guidance 1, no negative prompt"

// One field a line.
// clang-format off
const vx_field_entry vx_field_table[] = {
    { { "prompt", "--prompt", "-p", VX_FIELD_TEXT, VX_GROUP_REQUEST, "TEXT", "1 byte..64 KiB of UTF-8, at most 16384 tokens", NULL, "what happens in the clip, verbatim", NULL }, VX_STORE_TEXT, REQUEST(prompt), 0, 0 },
    { { "prompt_embeds", "--prompt-embeds", NULL, VX_FIELD_FILE, VX_GROUP_REQUEST, "FILE", NULL, NULL, "safetensors with prompt_embeds and text_token_tags, in place of encoding the prompt", NULL }, VX_STORE_TEXT, REQUEST(prompt_embeds), 0, 0 },
    { { "output", "--output", "-o", VX_FIELD_FILE, VX_GROUP_DELIVERY, "FILE", NULL, NULL, "the MP4; %d becomes the number of the clip with --outputs", NULL }, VX_STORE_TEXT, DELIVERY(output), 0, 0 },
    { { "task", "--task", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "t2va|i2va|l2va|fl2va|ref2va", NULL, "from the inputs", "what conditions the clip; a contradiction to the inputs is an error", NULL }, VX_STORE_TEXT, REQUEST(task), 0, 0 },
    { { "first", "--first", NULL, VX_FIELD_FILE, VX_GROUP_REQUEST, "IMG", NULL, NULL, "picture of the first frame", NULL }, VX_STORE_FIRST, 0, 0, 0 },
    { { "last", "--last", NULL, VX_FIELD_FILE, VX_GROUP_REQUEST, "IMG", NULL, NULL, "picture of the last frame", NULL }, VX_STORE_LAST, 0, 0, 0 },
    { { "keyframe", "--keyframe", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "FRAME=IMG", "0..frames-1, or negative from the end", NULL, "picture of any frame; repeatable", NULL }, VX_STORE_KEYFRAME, 0, 0, 0 },
    { { "ref", "--ref", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "[KIND:]PATH", "at most 9 pictures, 3 videos, 3 sounds, 12 in all; KIND image, video or audio", NULL, "reference, in order; repeatable", NULL }, VX_STORE_REFERENCE, 0, 0, 0 },
    { { "conditions", "--conditions", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "JSON", NULL, NULL, "keyframes and references as a JSON list of {type, uri, role, frame_index}", NULL }, VX_STORE_CONDITIONS, 0, 0, 0 },
    { { "size", "--size", NULL, VX_FIELD_SIZE, VX_GROUP_REQUEST, "WxH", "multiples of 32, 32..4096, ratio 1:4..4:1, area at most 4128768", "the earliest keyframe's ratio, else 1344x768", "canvas", NULL }, VX_STORE_SIZE, REQUEST(width), 32, 4096 },
    { { "aspect", "--aspect", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "W:H", "1:4..4:1", "the earliest keyframe's, else 16:9", "canvas by the canvas rule", NULL }, VX_STORE_TEXT, REQUEST(aspect), 0, 0 },
    { { "frames", "--frames", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "22..362 after aligning up to 17n+5", "124", "length in frames of 1/24 s", NULL }, VX_STORE_I64, REQUEST(num_frames), 1, 362 },
    { { "seconds", "--seconds", NULL, VX_FIELD_NUMBER, VX_GROUP_REQUEST, "S", "aligned up like --frames", NULL, "length in seconds", NULL }, VX_STORE_DOUBLE, REQUEST(seconds), 1e-9, 15.0834 },
    { { "steps", "--steps", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "1..1000", "49", "model evaluations", NULL }, VX_STORE_INT, REQUEST(evaluations), 1, 1000 },
    { { "num_inference_steps", "--num-inference-steps", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "2..1001", NULL, "sigma points: one more than evaluations; excludes --steps", NULL }, VX_STORE_INT, REQUEST(num_inference_steps), 2, 1001 },
    { { "sampler", "--sampler", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "euler|res_multistep", NULL, "euler", "how a step is taken", NULL }, VX_STORE_TEXT, REQUEST(sampler), 0, 0 },
    { { "schedule", "--schedule", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "official|simple|beta|normal", NULL, "official", "how sigmas are spaced", NULL }, VX_STORE_TEXT, REQUEST(schedule), 0, 0 },
    { { "sigmas", "--sigmas", NULL, VX_FIELD_NUMBERS, VX_GROUP_REQUEST, "LIST", "strictly decreasing, first <= 1, last 0, 2..1001 values", NULL, "the sigmas themselves, separated by commas", NULL }, VX_STORE_SIGMAS, REQUEST(sigmas), 0, 1 },
    { { "shift", "--shift", NULL, VX_FIELD_NUMBER, VX_GROUP_REQUEST, "F", "> 0, at most 100", "the checkpoint's (12)", "sigma shift of the picture", NULL }, VX_STORE_FLOAT, REQUEST(flow_shift), 1e-6, 100 },
    { { "audio_shift", "--audio-shift", NULL, VX_FIELD_NUMBER, VX_GROUP_REQUEST, "F", "> 0, at most 100", "the checkpoint's (3)", "sigma shift of the sound", NULL }, VX_STORE_FLOAT, REQUEST(audio_flow_shift), 1e-6, 100 },
    { { "seed", "--seed", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "0..9223372036854775807", "random", "seed of the noise", NULL }, VX_STORE_SEED, REQUEST(seed), 0, 0 },
    { { "noise", "--noise", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "sglang|diffusers|comfyui", NULL, "sglang", "whose order of drawing noise", NULL }, VX_STORE_TEXT, REQUEST(noise), 0, 0 },
    { { "outputs", "--outputs", NULL, VX_FIELD_INTEGER, VX_GROUP_DELIVERY, "N", "1..100", "1", "clips with seeds seed, seed+1, ...", NULL }, VX_STORE_INT, DELIVERY(outputs), 1, 100 },
    { { "precision", "--precision", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "exact|float32", NULL, "exact", "exact: the reference's bf16 arithmetic, sound and conditions in f32 (on a GPU with products by parts); float32: every activation f32", NULL }, VX_STORE_TEXT, REQUEST(precision), 0, 0 },
    { { "vae_precision", "--vae-precision", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "auto|float16|float32", NULL, "auto", "decoder of the picture; float16: products of half precision with float32 sums, as released for GPUs; auto: that on a GPU, else and with precision float32 float32", NULL }, VX_STORE_TEXT, REQUEST(vae_precision), 0, 0 },
    { { "vae_rope", "--vae-rope", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "official|float32", NULL, "official", "rotary coordinates of a float16 decoder: float16 as released, or float32 as diffusers has them", NULL }, VX_STORE_TEXT, REQUEST(vae_rope), 0, 0 },
    { { "canvas_short_edge", "--canvas-short-edge", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "32..4096", "768", "short edge of the canvas rule", NULL }, VX_STORE_I64, REQUEST(canvas_short_edge), 32, 4096 },
    { { "canvas_max_pixels", "--canvas-max-pixels", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "1024..4128768", "1032192", "area cap of the canvas rule", NULL }, VX_STORE_I64, REQUEST(canvas_max_pixels), 1024, 4128768 },
    { { "reference_short_edge", "--reference-short-edge", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "32..4096", "2048", "short edge that reference pictures are scaled to", NULL }, VX_STORE_I64, REQUEST(reference_short_edge), 32, 4096 },
    { { "guidance_scale", "--guidance-scale", NULL, VX_FIELD_NUMBER, VX_GROUP_REQUEST, "F", NULL, NULL, "refused", DISTILLED }, VX_STORE_NONE, 0, 0, 0 },
    { { "negative_prompt", "--negative-prompt", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "TEXT", NULL, NULL, "refused", DISTILLED }, VX_STORE_NONE, 0, 0, 0 },
    { { "lora", "--lora", NULL, VX_FIELD_TEXT, VX_GROUP_REQUEST, "FILE[:STRENGTH]", "any finite strength, 0 leaves it out; at most 8", "strength 1", "adapter of the transformer, added in the order given; repeatable", NULL }, VX_STORE_LORA, 0, 0, 0 },
    { { "lora_alpha", "--lora-alpha", NULL, VX_FIELD_NUMBER, VX_GROUP_REQUEST, "F", "> 0", "of the table of known files, else the rank", "alpha of the adapter named before it, where its file says none", NULL }, VX_STORE_LORA_ALPHA, 0, 1e-9, 1e9 },
    { { "lora_allow_partial", "--lora-allow-partial", NULL, VX_FIELD_SWITCH, VX_GROUP_REQUEST, NULL, NULL, NULL, "leave out keys of an adapter that fit no module", NULL }, VX_STORE_BOOL, REQUEST(lora_allow_partial), 0, 0 },
    { { "lora_mode", "--lora-mode", NULL, VX_FIELD_CHOICE, VX_GROUP_REQUEST, "auto|branch|merge", NULL, "auto", "beside the weights (auto, branch), or merged into copies of plain weights", NULL }, VX_STORE_TEXT, REQUEST(lora_mode), 0, 0 },
    { { "turbo", "--turbo", NULL, VX_FIELD_INTEGER, VX_GROUP_REQUEST, "N", "4 or 8", NULL, "steps, shifts and sigmas of a distilled adapter, by the table of known files", NULL }, VX_STORE_INT, REQUEST(turbo), 4, 8 },
    { { "fps", "--fps", NULL, VX_FIELD_NUMBER, VX_GROUP_MEDIA, "F", "1..120", "24", "presentation only: the same frames, shown at another rate", NULL }, VX_STORE_DOUBLE, MEDIA(fps), 1, 120 },
    { { "video_codec", "--video-codec", NULL, VX_FIELD_CHOICE, VX_GROUP_MEDIA, "h264", NULL, "h264", "codec of the picture", NULL }, VX_STORE_TEXT, MEDIA(video_codec), 0, 0 },
    { { "crf", "--crf", NULL, VX_FIELD_INTEGER, VX_GROUP_MEDIA, "N", "0..51", "18", "quality of the picture, 0 is best", NULL }, VX_STORE_CRF, MEDIA(crf), 0, 51 },
    { { "pixel_format", "--pixel-format", NULL, VX_FIELD_CHOICE, VX_GROUP_MEDIA, "yuv420p|yuv444p", NULL, "yuv420p", "chroma of the picture", NULL }, VX_STORE_TEXT, MEDIA(pixel_format), 0, 0 },
    { { "audio_codec", "--audio-codec", NULL, VX_FIELD_CHOICE, VX_GROUP_MEDIA, "aac|none", NULL, "aac", "codec of the sound", NULL }, VX_STORE_TEXT, MEDIA(audio_codec), 0, 0 },
    { { "audio_bitrate", "--audio-bitrate", NULL, VX_FIELD_TEXT, VX_GROUP_MEDIA, "N[k]", "32k..512k", "192k", "bits per second of the sound", NULL }, VX_STORE_BITRATE, MEDIA(audio_bitrate), 32000, 512000 },
    { { "no_metadata", "--no-metadata", NULL, VX_FIELD_SWITCH, VX_GROUP_MEDIA, NULL, NULL, NULL, "leave the request out of the MP4", NULL }, VX_STORE_BOOL, MEDIA(no_metadata), 0, 0 },
    { { "save_latents", "--save-latents", NULL, VX_FIELD_FILE, VX_GROUP_DELIVERY, "FILE", NULL, NULL, "keep the latents (without --output nothing is decoded)", NULL }, VX_STORE_TEXT, DELIVERY(save_latents), 0, 0 },
    { { "dump_tensors", "--dump-tensors", NULL, VX_FIELD_FILE, VX_GROUP_DELIVERY, "FILE", NULL, NULL, "intermediate tensors, for parity and bug reports", NULL }, VX_STORE_TEXT, DELIVERY(dump_tensors), 0, 0 },
};
// clang-format on
const int vx_field_count = (int)(sizeof vx_field_table / sizeof *vx_field_table);

static const struct {
    const char *alias, *name;
} aliases[] = {
    { "num_frames", "frames" },
    { "duration", "seconds" },
    { "duration_seconds", "seconds" },
    { "evaluations", "steps" },
    { "aspect_ratio", "aspect" },
    { "flow_shift", "shift" },
    { "audio_flow_shift", "audio_shift" },
    { "short_edge", "canvas_short_edge" },
    { "n", "outputs" },
    { "num_outputs_per_prompt", "outputs" },
    { "keyframes", "keyframe" },
    { "refs", "ref" },
    { "loras", "lora" },
};

// '-' counts as '_'.
static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    return *a == *b;
}

const vx_field_entry *vx_field_find(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (same_name(name, aliases[i].alias)) name = aliases[i].name;
    for (int i = 0; i < vx_field_count; i++)
        if (same_name(name, vx_field_table[i].field.name)) return &vx_field_table[i];
    return NULL;
}

const vx_field *vx_field_at(int index)
{
    return index >= 0 && index < vx_field_count ? &vx_field_table[index].field : NULL;
}
