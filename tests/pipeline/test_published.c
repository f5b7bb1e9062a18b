// Published single files, predicted from their schema: size to the byte where the specification has it so (checkpoints
// specification 1.2, 7.1; text encoder specification 5.2), and opened and bound as sparse files without numbers, within a second.
#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "denoiser/denoiser.h"
#include "text/language.h"
#include "text/vision.h"
#include "vae/video_decoder.h"
#include "weights/census.h"

// ---- a file as the reference's writer makes it: wider formats first, then by name; header padded to 8 bytes ----

typedef struct entry {
    char name[96];
    vx_dtype dtype;
    int rank;
    int64_t shape[5];
    uint64_t bytes, offset;
    const void *data; // markers and tables that are looked at; NULL: zeros
} entry;
typedef struct schema {
    entry tensor[2200];
    int count;
    const char *metadata; // "{...}" or NULL
    vx_str header;
    uint64_t payload;
} schema;

static schema s;

static entry *add(const char *name, vx_dtype dtype, int rank, const int64_t *shape)
{
    assert_true(s.count < 2200);
    entry *e = &s.tensor[s.count++];
    *e = (entry){ .dtype = dtype, .rank = rank, .bytes = (uint64_t)vx_dtype_bits(dtype) / 8 };
    assert_true(snprintf(e->name, sizeof e->name, "%s", name) < (int)sizeof e->name);
    for (int i = 0; i < rank; i++) e->bytes *= (uint64_t)(e->shape[i] = shape[i]);
    return e;
}
#define ADD(name, dtype, ...) \
    add(name, dtype, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ })

static const char *join(const char *a, const char *b)
{
    static char names[4][128];
    static int next;
    char *out = names[next = (next + 1) % 4];
    snprintf(out, sizeof names[0], "%s%s", a, b);
    return out;
}

static int order(vx_dtype t) // of the reference's list of formats
{
    static const vx_dtype list[] = { VX_U8, VX_I8, VX_F8_E5M2, VX_F8_E4M3, VX_F8_E8M0, VX_F16, VX_BF16, VX_F32 };
    for (int i = 0; i < 8; i++)
        if (list[i] == t) return i;
    return -1;
}

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->dtype != y->dtype ? order(y->dtype) - order(x->dtype) : strcmp(x->name, y->name);
}

static void finish(void)
{
    qsort(s.tensor, (size_t)s.count, sizeof *s.tensor, compare);
    vx_str_free(&s.header);
    s.payload = 0;
    vx_str_print(&s.header, "{");
    if (s.metadata) vx_str_print(&s.header, "\"__metadata__\":%s,", s.metadata);
    for (int i = 0; i < s.count; i++) {
        entry *e = &s.tensor[i];
        e->offset = s.payload;
        s.payload += e->bytes;
        vx_str_print(&s.header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", e->name, vx_dtype_name(e->dtype));
        for (int a = 0; a < e->rank; a++) vx_str_print(&s.header, "%s%lld", a ? "," : "", (long long)e->shape[a]);
        vx_str_print(&s.header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)e->offset, (unsigned long long)s.payload);
    }
    vx_str_print(&s.header, "}");
    while (s.header.size % 8) vx_str_print(&s.header, " ");
}

// ---- formats of a linear ----

typedef enum format { PLAIN, FP8, INT8, INT8_64, NVFP4, MXFP8, W4A4, W4A8, NVFP4_AWQ, INT8_TABLE } format;

static void mark(const char *layer, const char *text)
{
    ADD(join(layer, ".comfy_quant"), VX_U8, (int64_t)strlen(text))->data = text;
}

static void linear(const char *layer, format f, vx_dtype plain, int64_t n, int64_t k)
{
    const char *weight = join(layer, ".weight"), *scale = join(layer, ".weight_scale");
    switch (f) {
    case PLAIN: ADD(weight, plain, n, k); break;
    case FP8:
        ADD(weight, VX_F8_E4M3, n, k);
        add(scale, VX_F32, 0, NULL);
        add(join(layer, ".input_scale"), VX_F32, 0, NULL);
        break;
    case INT8:
    case INT8_64:
    case INT8_TABLE:
        ADD(weight, VX_I8, n, k);
        ADD(scale, VX_F32, n, 1);
        mark(layer, f == INT8      ? "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 256}"
                    : f == INT8_64 ? "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 64}"
                                   : "{\"format\": \"int8_tensorwise\"}");
        break;
    case NVFP4:
    case NVFP4_AWQ:
        ADD(weight, VX_U8, n, k / 2);
        ADD(scale, VX_F8_E4M3, n, k / 16);
        if (f == NVFP4) ADD(join(layer, ".weight_scale_2"), VX_F32, 1); // as the third party's file has it
        else add(join(layer, ".weight_scale_2"), VX_F32, 0, NULL);
        mark(layer, f == NVFP4 ? "{\"format\": \"nvfp4\"}" : "{\"format\": \"nvfp4\", \"full_precision_matrix_mult\": true}");
        if (f == NVFP4_AWQ && (vx_has_suffix(layer, "o_proj") || vx_has_suffix(layer, "down_proj")))
            ADD(join(layer, ".pre_quant_scale"), VX_BF16, k);
        break;
    case MXFP8:
        ADD(weight, VX_F8_E4M3, n, k);
        ADD(scale, VX_U8, n, k / 32);
        break;
    case W4A4:
        ADD(weight, VX_I8, n, k / 2);
        ADD(scale, VX_F32, n);
        break;
    case W4A8:
        ADD(weight, VX_I8, n, k / 2);
        ADD(join(layer, ".weight_s_rel"), VX_F8_E4M3, n, k / 16);
        ADD(join(layer, ".weight_s_channel"), VX_F32, n);
        ADD(join(layer, ".weight_codebook"), VX_F32, 16);
        break;
    }
}

static void biased(const char *layer, vx_dtype t, int64_t n, int64_t k)
{
    ADD(join(layer, ".weight"), t, n, k);
    ADD(join(layer, ".bias"), t, n);
}

// ---- the components ----

enum { HIDDEN = 5376, INNER = 7168, FFN = 14336, BLOCKS = 50 };
static const uint32_t inv_freq[16] = { 0x3f800000, 0x3f0ff59a, 0x3ea1e89b, 0x3e361887, 0x3dcccccd, 0x3d6655c2,
                                       0x3d0186e3, 0x3c91ad39, 0x3c23d70a, 0x3bb8449c, 0x3b4f3e38, 0x3ae91528,
                                       0x3a83126f, 0x3a136a16, 0x39a5cb60, 0x393a7753 };

static void block(const char *prefix, format f)
{
    ADD(join(prefix, "norm1.weight"), VX_BF16, HIDDEN);
    ADD(join(prefix, "norm2.weight"), VX_BF16, HIDDEN);
    ADD(join(prefix, "attn.q_norm.weight"), VX_BF16, 128);
    ADD(join(prefix, "attn.k_norm.weight"), VX_BF16, 128);
    char name[96];
    static const struct {
        const char *name;
        int64_t n, k;
    } linears[] = { { "attn.qkv_proj", 3 * INNER, HIDDEN },
                    { "attn.out_proj", HIDDEN, INNER },
                    { "mlp.fc1", 2 * FFN, HIDDEN },
                    { "mlp.fc2", HIDDEN, FFN } };
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, linears[i].name);
        linear(name, f, VX_BF16, linears[i].n, linears[i].k);
    }
}

static void transformer(bool pruned, format f, bool marked)
{
    const vx_dtype adaln = pruned ? VX_F16 : VX_BF16;
    const int64_t rank = pruned ? 8 : 2688;
    char name[64];
    s.count = 0;
    s.metadata = NULL;
    biased("video_patch_proj", VX_F32, HIDDEN, 96);
    biased("audio_patch_proj", VX_F32, HIDDEN, 32);
    biased("condition_proj", VX_BF16, HIDDEN, 5120);
    if (pruned) ADD("adaln_t_table", VX_F32, 1025, 8);
    else {
        biased("time_embedder.proj_in", VX_F32, HIDDEN, 256);
        biased("time_embedder.proj_out", VX_F32, 2688, HIDDEN);
    }
    ADD("rope.inv_freq", VX_F32, 16)->data = inv_freq;
    block("token_refiner.blocks.0.", PLAIN);
    block("token_refiner.blocks.1.", PLAIN);
    ADD("token_refiner.final_norm.weight", VX_BF16, HIDDEN);
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "blocks.%d.", i);
        block(name, f);
        snprintf(name, sizeof name, "blocks.%d.adaln_proj.linear", i);
        linear(name, !pruned && f == INT8 ? INT8_64 : PLAIN, adaln, 96768, rank);
        ADD(join(name, ".bias"), adaln, 96768);
    }
    ADD("final_layer.norm.weight", VX_BF16, HIDDEN);
    biased("final_layer.adaln_proj.linear", adaln, 2 * HIDDEN, rank);
    biased("final_layer.video_out", VX_F32, 96, HIDDEN);
    biased("final_layer.audio_out", VX_F32, 32, HIDDEN);
    if (f == NVFP4) s.metadata = "{\"format\":\"pt\"}";
    if (!marked) s.metadata = "{\"config\":\"{\\\"transformer\\\": {\\\"image_model\\\": \\\"minimax_h3\\\"}}\"}";
    finish();
}

static void vision(void)
{
    char p[96];
    ADD("visual.patch_embed.proj.weight", VX_BF16, 1152, 3, 2, 16, 16);
    ADD("visual.patch_embed.proj.bias", VX_BF16, 1152);
    ADD("visual.pos_embed.weight", VX_BF16, 2304, 1152);
    for (int i = 0; i < 27; i++) {
        static const char *const names[] = { "attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2" };
        static const int64_t n[] = { 3456, 1152, 4304, 1152 }, k[] = { 1152, 1152, 1152, 4304 };
        for (int j = 0; j < 2; j++) {
            snprintf(p, sizeof p, "visual.blocks.%d.norm%d", i, j + 1);
            ADD(join(p, ".weight"), VX_BF16, 1152);
            ADD(join(p, ".bias"), VX_BF16, 1152);
        }
        for (int j = 0; j < 4; j++) {
            snprintf(p, sizeof p, "visual.blocks.%d.%s", i, names[j]);
            biased(p, VX_BF16, n[j], k[j]);
        }
    }
    for (int i = -1; i < 3; i++) {
        char merger[64];
        if (i < 0) snprintf(merger, sizeof merger, "visual.merger.");
        else snprintf(merger, sizeof merger, "visual.deepstack_merger_list.%d.", i);
        ADD(join(merger, "norm.weight"), VX_BF16, i < 0 ? 1152 : 4608);
        ADD(join(merger, "norm.bias"), VX_BF16, i < 0 ? 1152 : 4608);
        snprintf(p, sizeof p, "%slinear_fc1", merger);
        biased(p, VX_BF16, 4608, 4608);
        snprintf(p, sizeof p, "%slinear_fc2", merger);
        biased(p, VX_BF16, 5120, 4608);
    }
}

static void text_encoder(format f)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } linears[] = { { "self_attn.q_proj", 8192, 5120 }, { "self_attn.k_proj", 1024, 5120 }, { "self_attn.v_proj", 1024, 5120 },
                    { "self_attn.o_proj", 5120, 8192 }, { "mlp.gate_proj", 25600, 5120 },   { "mlp.up_proj", 25600, 5120 },
                    { "mlp.down_proj", 5120, 25600 } };
    char p[96];
    s.count = 0;
    linear("model.embed_tokens", f == NVFP4_AWQ ? INT8_TABLE : PLAIN, VX_BF16, 151936, 5120);
    for (int i = 0; i < 50; i++) {
        static const char *const norms[] = { "input_layernorm", "post_attention_layernorm", "self_attn.q_norm",
                                             "self_attn.k_norm" };
        for (int j = 0; j < 4; j++) {
            snprintf(p, sizeof p, "model.layers.%d.%s.weight", i, norms[j]);
            ADD(p, VX_BF16, j < 2 ? 5120 : 128);
        }
        for (int j = 0; j < 7; j++) {
            snprintf(p, sizeof p, "model.layers.%d.%s", i, linears[j].name);
            linear(p, f, VX_BF16, linears[j].n, linears[j].k);
        }
    }
    vision();
    s.metadata = f == NVFP4_AWQ ? NULL
                                : "{\"minimax_h3_te\":\"{\\\"num_hidden_layers\\\": 50, \\\"output\\\": "
                                  "\\\"unnormalized_hidden_after_layer_50\\\"}\"}";
    finish();
}

static void conv(const char *name, int64_t n, int64_t c, int64_t kernel)
{
    ADD(join(name, ".weight"), VX_F16, n, c, kernel, kernel, kernel);
    ADD(join(name, ".bias"), VX_F16, n);
}

static void norm(const char *name, int64_t n)
{
    ADD(join(name, ".weight"), VX_F16, n);
    ADD(join(name, ".bias"), VX_F16, n);
}

static void video_vae(void)
{
    static const int64_t width[] = { 128, 128, 256, 256, 512, 512, 1024 };
    char p[64], q[96];
    s.count = 0;
    s.metadata = NULL;
    conv("encoder.conv_in", 128, 3, 3);
    for (int l = 0; l < 6; l++) {
        for (int b = 0; b < 2; b++) {
            const int64_t in = b ? width[l + 1] : width[l], out = width[l + 1];
            snprintf(p, sizeof p, "encoder.down.%d.block.%d.", l, b);
            snprintf(q, sizeof q, "%snorm1", p), norm(q, in);
            snprintf(q, sizeof q, "%sconv1", p), conv(q, out, in, 3);
            snprintf(q, sizeof q, "%snorm2", p), norm(q, out);
            snprintf(q, sizeof q, "%sconv2", p), conv(q, out, out, 3);
            snprintf(q, sizeof q, "%snin_shortcut", p);
            if (in != out) conv(q, out, in, 1);
        }
        snprintf(q, sizeof q, "encoder.down.%d.downsample.conv", l);
        if (l < 4) conv(q, width[l + 1], width[l + 1], 3);
    }
    norm("encoder.norm_out", 1024);
    conv("encoder.conv_out", 48, 1024, 3);
    conv("quant_conv", 48, 48, 1);
    conv("post_quant_conv", 24, 24, 1);
    biased("decoder.x_embedder", VX_F16, 2048, 24);
    ADD("decoder.register_tokens", VX_F16, 1, 4, 2048);
    for (int i = 0; i < 36; i++) {
        static const char *const vectors[] = { "norm1.weight", "scale1", "norm2.weight", "scale2" };
        snprintf(p, sizeof p, "decoder.transformer_blocks.%d.", i);
        for (int j = 0; j < 4; j++) ADD(join(p, vectors[j]), VX_F16, 2048);
        snprintf(q, sizeof q, "%sattn.to_qkv", p), biased(q, VX_F16, 6144, 2048);
        snprintf(q, sizeof q, "%sattn.to_out", p), biased(q, VX_F16, 2048, 2048);
        snprintf(q, sizeof q, "%sff.w1", p), biased(q, VX_F16, 16384, 2048);
        snprintf(q, sizeof q, "%sff.w2", p), biased(q, VX_F16, 2048, 8192);
    }
    norm("decoder.norm_out", 2048);
    biased("decoder.proj_out", VX_F16, 3072, 2048);
    finish();
}

// ---- sizes ----

static void predicts_published_sizes(void **state)
{
    (void)state;
    const struct {
        const char *says;
        int kind; // 0 full, 1 pruned, 2 text encoder, 3 video VAE
        format f;
        uint64_t payload; // 0: not published
        uint64_t file;    // 0: not published to the byte
        int tensors;      // 0: not known
    } cases[] = {
        { "full bf16", 0, PLAIN, 66280430144, 0, 535 },
        { "full int8", 0, INT8, 34038784094, 0, 1035 }, // written in another order: its header is 2.5 % longer
        { "pruned bf16", 1, PLAIN, 40225668192, 0, 532 },
        { "pruned int8", 1, INT8, 20970284192, 20970379616, 932 },
        { "pruned fp8", 1, FP8, 20958085792, 0, 932 },
        { "pruned nvfp4", 1, NVFP4, 0, 12528637032, 1132 },
        { "text bf16", 2, PLAIN, 51506191840, 51506295256, 902 },
        { "text int8", 2, INT8, 27141161040, 27141342152, 1602 },
        { "text nvfp4", 2, NVFP4_AWQ, 15686911143, 15687142551, 2054 },
        { "video f16", 3, PLAIN, 5207737968, 0, 559 },
        // Of scales without markers, as section 7.1 counts them.
        { "pruned mxfp8", 1, MXFP8, 21560196192, 0, 732 },
        { "pruned w4a4", 1, W4A4, 11336477792, 0, 732 },
        { "pruned w4a8", 1, W4A8, 12540714592, 0, 1132 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const format f = cases[i].f;
        if (cases[i].kind < 2) transformer(cases[i].kind == 1, f, f == INT8 || f == NVFP4);
        else if (cases[i].kind == 2) text_encoder(f);
        else video_vae();
        const uint64_t file = 8 + s.header.size + s.payload;
        if ((cases[i].payload && s.payload != cases[i].payload) || (cases[i].file && file != cases[i].file) ||
            s.count != cases[i].tensors)
            fail_msg("%s: %d tensors of %llu bytes, a header of %zu, a file of %llu", cases[i].says, s.count,
                     (unsigned long long)s.payload, s.header.size, (unsigned long long)file);
    }
    vx_str_free(&s.header);
}

// ---- opened ----

static char path[128];

static void put_file(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(s.header.size >> 8 * i);
    assert_int_equal(write(fd, length, 8), 8);
    assert_int_equal(write(fd, s.header.data, s.header.size), (ssize_t)s.header.size);
    const uint64_t start = 8 + s.header.size;
    assert_int_equal(ftruncate(fd, (off_t)(start + s.payload)), 0);
    for (int i = 0; i < s.count; i++)
        if (s.tensor[i].data)
            assert_int_equal(pwrite(fd, s.tensor[i].data, s.tensor[i].bytes, (off_t)(start + s.tensor[i].offset)),
                             (ssize_t)s.tensor[i].bytes);
    close(fd);
}

static void assert_format(const vx_component *c, const char *name, int64_t tensors)
{
    vx_format_count count[VX_MOST_FORMATS];
    const int n = vx_component_formats(c, count);
    uint64_t bytes = 0;
    bool found = false;
    for (int i = 0; i < n; i++) {
        bytes += count[i].bytes;
        if (strcmp(count[i].name, name) != 0) continue;
        assert_int_equal(count[i].tensors, tensors);
        found = true;
    }
    assert_true(found);
    assert_true(bytes <= vx_component_bytes(c)); // without the markers
}

static void opens_transformers_within_a_second(void **state)
{
    (void)state;
    static const struct {
        bool pruned;
        format f;
        const char *format;
        int64_t tensors;
    } cases[] = { { false, PLAIN, "BF16", 322 + 200 },
                  { false, INT8, "int8_convrot", 250 },
                  { true, PLAIN, "F16", 102 },
                  { true, INT8, "int8_convrot", 200 },
                  { true, NVFP4, "nvfp4", 200 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        transformer(cases[i].pruned, cases[i].f, cases[i].f != PLAIN);
        put_file();
        const double began = vx_clock_s();
        vx_component *c;
        vx_denoiser *d;
        assert_ok(vx_component_open(&c, VX_TRANSFORMER, path));
        assert_ok(vx_denoiser_open(&d, c));
        const double took = vx_clock_s() - began;
        assert_true(took < 1.0 || getenv("VORTEX_SLOW_MACHINE"));
        assert_int_equal(vx_denoiser_config_of(d)->layers, 50);
        assert_int_equal(vx_denoiser_config_of(d)->curve_points, cases[i].pruned ? 1025 : 0);
        if (cases[i].f != PLAIN || cases[i].pruned) assert_format(c, cases[i].format, cases[i].tensors);
        print_message("%s %s: %.0f ms\n", cases[i].pruned ? "pruned" : "full", cases[i].format, 1e3 * took);
        vx_denoiser_close(&d);
        vx_component_close(&c);
    }
}

static void opens_encoders_within_a_second(void **state)
{
    (void)state;
    const format formats[] = { PLAIN, INT8, NVFP4_AWQ };
    for (int i = 0; i < 3; i++) {
        text_encoder(formats[i]);
        put_file();
        const double began = vx_clock_s();
        vx_component *c;
        vx_language *language;
        vx_vision *tower;
        assert_ok(vx_component_open(&c, VX_TEXT_ENCODER, path));
        assert_ok(vx_language_open(&language, c));
        assert_ok(vx_vision_open(&tower, c));
        assert_true(vx_clock_s() - began < 1.0 * SLOWDOWN || getenv("VORTEX_SLOW_MACHINE"));
        if (formats[i] == NVFP4_AWQ) assert_format(c, "nvfp4_awq", 100);
        vx_vision_close(&tower);
        vx_language_close(&language);
        vx_component_close(&c);
    }
    video_vae();
    put_file();
    vx_component *c;
    vx_video_decoder *decoder;
    assert_ok(vx_component_open(&c, VX_VIDEO_VAE, path));
    assert_ok(vx_video_decoder_open(&decoder, c));
    assert_int_equal(vx_video_decoder_config_of(decoder)->layers, 36);
    vx_video_decoder_close(&decoder);
    vx_component_close(&c);
}

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/vortex-published-%d.safetensors", (int)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    vx_str_free(&s.header);
    unlink(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicts_published_sizes),
        cmocka_unit_test(opens_transformers_within_a_second),
        cmocka_unit_test(opens_encoders_within_a_second),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
