// Quantised layers: every marker style is understood, every wrong one refused with the layer's name.
#include "files.h"

#include "base/alloc.h"
#include "weights/component.h"

enum { N = 32, K = 64 };
#define L "blocks.0.mlp.fc2"

static unsigned char zeros[1 << 17];
static const float ones[N] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
static const float half_[1] = { 0.5f }, nan_[1] = { __builtin_nanf("") }, minus[1] = { -1 };

// A transformer's file: the tensors of a case and what makes it one.
typedef struct part {
    const char *name;
    vx_dtype dtype;
    int rank;
    int64_t shape[2];
    const void *data;
} part;
enum { MOST = 8 };
typedef struct layer_file {
    part part[MOST];
    const char *marker; // of L
    const char *layers; // _quantization_metadata
} layer_file;

#define W8(t)                              \
    {                                      \
        L ".weight", t, 2, { N, K }, zeros \
    }
#define W4(t)                                  \
    {                                          \
        L ".weight", t, 2, { N, K / 2 }, zeros \
    }
#define SCALE                                     \
    {                                             \
        L ".weight_scale", VX_F32, 0, { 0 }, ones \
    }
#define ROWS                                         \
    {                                                \
        L ".weight_scale", VX_F32, 2, { N, 1 }, ones \
    }
#define TILES(t)                                   \
    {                                              \
        L ".weight_scale", t, 2, { 128, 4 }, zeros \
    }
#define SCALE_2                                     \
    {                                               \
        L ".weight_scale_2", VX_F32, 0, { 0 }, ones \
    }

static const char *write_file(const layer_file *f)
{
    vx_safetensors_tensor t[MOST + 2];
    vx_safetensors_pair pairs[2] = { { "config", "{\"transformer\": {\"image_model\": \"minimax_h3\"}}" } };
    int n = 0;
    t[n++] = (vx_safetensors_tensor){ "audio_patch_proj.weight", VX_F32, 1, { 1 }, zeros };
    for (int i = 0; i < MOST && f->part[i].name; i++)
        t[n++] = (vx_safetensors_tensor){
            f->part[i].name, f->part[i].dtype, f->part[i].rank, { f->part[i].shape[0], f->part[i].shape[1] }, f->part[i].data
        };
    if (f->marker) t[n++] = (vx_safetensors_tensor){ L ".comfy_quant", VX_U8, 1, { (int64_t)strlen(f->marker) }, f->marker };
    if (f->layers) pairs[1] = (vx_safetensors_pair){ "_quantization_metadata", f->layers };
    put_text("q.safetensors", "");
    assert_ok(vx_safetensors_write(at("q.safetensors"), true, t, n, pairs, f->layers ? 2 : 1));
    return at("q.safetensors");
}

// Opened and its layer bound.
static vx_status bind(const layer_file *f, vx_weight *w, char notes[256])
{
    vx_component *c;
    const char *path = write_file(f);
    vx_status s = vx_component_open(&c, VX_TRANSFORMER, path);
    if (s.code != VX_OK) return s;
    s = vx_component_linear(c, L, N, K, false, w);
    if (notes) snprintf(notes, 256, "%s", vx_component_notes(c));
    if (s.code == VX_OK) {
        vx_component_ignore(c, "audio_patch_proj");
        assert_ok(vx_component_finish(c)); // companions are accounted for
    }
    vx_component_close(&c); // what w points to is gone
    return s;
}

static void understands_every_style(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        layer_file file;
        vx_quant_kind kind;
        int rotate, group, scales;
        const char *note;
    } cases[] = {
        { "FP8 by marker", { { W8(VX_F8_E4M3), SCALE }, "{\"format\": \"float8_e4m3fn\"}", NULL }, VX_QUANT_FP8, 0, 0, 1, NULL },
        { "FP8 E5M2", { { W8(VX_F8_E5M2), SCALE }, "{\"format\": \"float8_e5m2\"}", NULL }, VX_QUANT_FP8, 0, 0, 1, NULL },
        { "FP8 with a scale of the input",
          { { W8(VX_F8_E4M3), SCALE, { L ".input_scale", VX_F32, 1, { 1 }, half_ } }, "{\"format\": \"float8_e4m3fn\"}", NULL },
          VX_QUANT_FP8,
          0,
          0,
          1,
          NULL },
        { "FP8 by metadata",
          { { W8(VX_F8_E4M3), SCALE },
            NULL,
            "{\"format_version\": \"1.0\", \"layers\": {\"" L "\": {\"format\": \"float8_e4m3fn\"}}}" },
          VX_QUANT_FP8,
          0,
          0,
          1,
          NULL },
        { "FP8 by both",
          { { W8(VX_F8_E4M3), SCALE },
            "{\"format\": \"float8_e4m3fn\"}",
            "{\"layers\": {\"" L "\": {\"format\": \"float8_e4m3fn\"}}}" },
          VX_QUANT_FP8,
          0,
          0,
          1,
          NULL },
        { "FP8, the older style",
          { { W8(VX_F8_E4M3),
              { L ".scale_weight", VX_F32, 1, { 1 }, ones },
              { L ".scale_input", VX_F32, 1, { 1 }, ones },
              { "scaled_fp8", VX_F8_E4M3, 1, { 2 }, zeros } },
            NULL,
            NULL },
          VX_QUANT_FP8,
          0,
          0,
          1,
          NULL },
        { "FP8 a row, unmarked (LightX2V)", { { W8(VX_F8_E4M3), ROWS }, NULL, NULL }, VX_QUANT_FP8, 0, 0, N, NULL },
        { "FP8 that was only cast", { { W8(VX_F8_E4M3) }, NULL, NULL }, VX_QUANT_FP8, 0, 0, 1, "without scales" },
        { "INT8", { { W8(VX_I8), SCALE }, "{\"format\": \"int8_tensorwise\"}", NULL }, VX_QUANT_INT8, 0, 0, 1, NULL },
        { "INT8 of ConvRot 64",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 64}", NULL },
          VX_QUANT_INT8,
          64,
          0,
          N,
          NULL },
        { "INT8 of ConvRot in params",
          { { W8(VX_I8), ROWS },
            "{\"format\": \"int8_tensorwise\", \"params\": {\"convrot\": true, \"convrot_groupsize\": 16}}",
            NULL },
          VX_QUANT_INT8,
          16,
          0,
          N,
          NULL },
        { "INT8 that names no format",
          { { W8(VX_I8), ROWS }, "{\"convrot\": true, \"convrot_groupsize\": 64}", NULL },
          VX_QUANT_INT8,
          64,
          0,
          N,
          "name no format" },
        { "INT8 unmarked", { { W8(VX_I8), ROWS }, NULL, NULL }, VX_QUANT_INT8, 0, 0, N, NULL },
        { "NVFP4",
          { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2 }, "{\"format\": \"nvfp4\", \"full_precision_matrix_mult\": true}", NULL },
          VX_QUANT_NVFP4,
          0,
          0,
          1,
          NULL },
        { "NVFP4 with AWQ",
          { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2, { L ".pre_quant_scale", VX_BF16, 1, { K }, zeros } },
            "{\"format\": \"nvfp4\"}",
            NULL },
          VX_QUANT_NVFP4,
          0,
          0,
          1,
          NULL },
        { "MXFP8", { { W8(VX_F8_E4M3), TILES(VX_F8_E8M0) }, "{\"format\": \"mxfp8\"}", NULL }, VX_QUANT_MXFP8, 0, 0, 0, NULL },
        { "MXFP8 with scales as U8",
          { { W8(VX_F8_E4M3), TILES(VX_U8) }, "{\"format\": \"mxfp8\"}", NULL },
          VX_QUANT_MXFP8,
          0,
          0,
          0,
          NULL },
        { "INT4",
          { { W4(VX_I8), { L ".weight_scale", VX_F32, 1, { N }, ones } },
            "{\"format\": \"convrot_w4a4\", \"convrot_groupsize\": 16}",
            NULL },
          VX_QUANT_INT4,
          16,
          0,
          N,
          NULL },
        { "W4A8",
          { { W4(VX_I8),
              { L ".weight_s_rel", VX_F8_E4M3, 2, { N, K / 16 }, zeros },
              { L ".weight_s_channel", VX_F32, 1, { N }, ones } },
            "{\"format\": \"asym_w4a8_int8\", \"convrot_groupsize\": 64}",
            NULL },
          VX_QUANT_W4A8,
          64,
          16,
          N,
          NULL },
        { "W4A8 not rotated, with all that it may have",
          { { W4(VX_I8),
              { L ".weight_s_rel", VX_F32, 2, { N, K / 32 }, zeros },
              { L ".weight_s_channel", VX_F32, 1, { N }, ones },
              { L ".weight_codebook", VX_F32, 1, { 16 }, zeros },
              { L ".weight_correction", VX_F32, 2, { K / 32, N }, zeros } },
            "{\"format\": \"asym_w4a8_int8\", \"convrot\": false, \"quant_group_size\": 32}",
            NULL },
          VX_QUANT_W4A8,
          0,
          32,
          N,
          NULL },
        { "plain", { { { L ".weight", VX_BF16, 2, { N, K }, zeros } }, NULL, NULL }, VX_QUANT_NONE, 0, 0, 0, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_weight w;
        char notes[256];
        vx_status s = bind(&cases[i].file, &w, notes);
        if (s.code != VX_OK) fail_msg("%s: VX-%d '%s'", cases[i].says, s.code, s.message);
        const vx_quant *q = &w.segment[0].quant;
        if (q->kind != cases[i].kind || q->rotate != cases[i].rotate || q->group != cases[i].group ||
            (q->scale.rank ? q->scale.shape[0] : 0) != cases[i].scales || (q->kind && q->k != K) || w.n != N || w.k != K)
            fail_msg("%s: kind %d, rotated %d, group %d, %d scales", cases[i].says, (int)q->kind, q->rotate, q->group,
                     (int)(q->scale.rank ? q->scale.shape[0] : 0));
        if (cases[i].note ? !strstr(notes, cases[i].note) : notes[0] != 0) fail_msg("%s: '%s'", cases[i].says, notes);
    }
}

static void refuses_every_fault(void **state)
{
    (void)state;
    static char large[70000];
    memset(large, ' ', sizeof large - 1);
    memcpy(large, "{\"format\": \"nvfp4\"}", 19);
    const struct {
        const char *says;
        layer_file file;
        vx_code want;
        const char *part;
    } cases[] = {
        { "an unknown format",
          { { W8(VX_I8), SCALE }, "{\"format\": \"int7\"}", NULL },
          VX_ERR_QUANT_FORMAT,
          "'int7' is not supported" },
        { "AWQ", { { W4(VX_I8), SCALE }, "{\"format\": \"awq_w4a16\"}", NULL }, VX_ERR_QUANT_FORMAT, "awq_w4a16" },
        { "SVDQuant", { { W4(VX_I8), SCALE }, "{\"format\": \"svdquant\"}", NULL }, VX_ERR_QUANT_FORMAT, "svdquant" },
        { "a marker without a format", { { W4(VX_U8), SCALE_2 }, "{}", NULL }, VX_ERR_QUANT_FORMAT, "names no format" },
        { "a marker that is no JSON", { { W8(VX_I8), SCALE }, "int8", NULL }, VX_ERR_QUANT_FORMAT, "marker" },
        { "a marker that is no object", { { W8(VX_I8), SCALE }, "[1]", NULL }, VX_ERR_QUANT_FORMAT, "no JSON object" },
        { "a format that is no text", { { W8(VX_I8), SCALE }, "{\"format\": 8}", NULL }, VX_ERR_QUANT_FORMAT, "no text" },
        { "a marker of 70,000 bytes",
          { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2 }, large, NULL },
          VX_ERR_FILE_LIMIT,
          "at most 65536" },
        { "a marker of nothing",
          { { { "x", VX_F32, 1, { 1 }, zeros } }, "{\"format\": \"nvfp4\"}", NULL },
          VX_ERR_TENSOR_MISSING,
          L },
        { "another format's numbers",
          { { W8(VX_I8), SCALE }, "{\"format\": \"float8_e4m3fn\"}", NULL },
          VX_ERR_QUANT_FORMAT,
          "stores F8_E4M3" },
        { "a format over plain numbers",
          { { { L ".weight", VX_BF16, 2, { N, K }, zeros } }, "{\"format\": \"nvfp4\"}", NULL },
          VX_ERR_QUANT_FORMAT,
          "is BF16" },
        { "a group of 48",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 48}", NULL },
          VX_ERR_QUANT_SCALE,
          "48" },
        { "a group that does not divide",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot\": true}", NULL },
          VX_ERR_QUANT_SCALE,
          "256" },
        { "a group of -1",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot_groupsize\": -1}", NULL },
          VX_ERR_QUANT_FORMAT,
          "convrot_groupsize" },
        { "a group of 2^40",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot_groupsize\": 1099511627776}", NULL },
          VX_ERR_QUANT_FORMAT,
          "65536" },
        { "a rotation that is a number",
          { { W8(VX_I8), ROWS }, "{\"format\": \"int8_tensorwise\", \"convrot\": 1}", NULL },
          VX_ERR_QUANT_FORMAT,
          "neither true nor false" },
        { "rotated FP8",
          { { W8(VX_F8_E4M3), SCALE }, "{\"format\": \"float8_e4m3fn\", \"convrot\": true}", NULL },
          VX_ERR_QUANT_FORMAT,
          "rotation" },
        { "no scale",
          { { W8(VX_I8) }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "weight_scale' is missing" },
        { "half of NVFP4's scales",
          { { W4(VX_U8), TILES(VX_F8_E4M3) }, "{\"format\": \"nvfp4\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "weight_scale_2' is missing" },
        { "a scale of two",
          { { W8(VX_I8), { L ".weight_scale", VX_F32, 1, { 2 }, ones } }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "scale is F32 [2]" },
        { "scales of a column",
          { { W8(VX_I8), { L ".weight_scale", VX_F32, 2, { 1, N }, ones } }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "[1,32]" },
        { "a scale of bf16",
          { { W8(VX_I8), { L ".weight_scale", VX_BF16, 1, { N }, zeros } }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "BF16" },
        { "tiles not filled up",
          { { W4(VX_U8), { L ".weight_scale", VX_F8_E4M3, 2, { N, K / 16 }, zeros }, SCALE_2 }, "{\"format\": \"nvfp4\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "block_scale" },
        { "tiles of F32", { { W4(VX_U8), TILES(VX_F32), SCALE_2 }, "{\"format\": \"nvfp4\"}", NULL }, VX_ERR_QUANT_SCALE, "F32" },
        { "a factor of half the columns",
          { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2, { L ".pre_quant_scale", VX_BF16, 1, { K / 2 }, zeros } },
            "{\"format\": \"nvfp4\"}",
            NULL },
          VX_ERR_QUANT_SCALE,
          "pre_scale" },
        { "an input's scale of two",
          { { W8(VX_F8_E4M3), SCALE, { L ".input_scale", VX_F32, 1, { 2 }, ones } }, "{\"format\": \"float8_e4m3fn\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "input_scale" },
        { "a companion of another format",
          { { W8(VX_I8), SCALE, SCALE_2 }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "weight_scale_2" },
        { "scales beside plain numbers",
          { { { L ".weight", VX_BF16, 2, { N, K }, zeros }, SCALE }, NULL, NULL },
          VX_ERR_QUANT_SCALE,
          "belongs to no quantised" },
        { "the same scale twice",
          { { W8(VX_F8_E4M3), SCALE, { L ".scale_weight", VX_F32, 1, { 1 }, ones } }, NULL, NULL },
          VX_ERR_QUANT_SCALE,
          "the same" },
        { "an infinite scale",
          { { W8(VX_I8), { L ".weight_scale", VX_F32, 1, { 1 }, nan_ } }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "nan" },
        { "a negative scale",
          { { W8(VX_I8), { L ".weight_scale", VX_F32, 1, { 1 }, minus } }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_QUANT_SCALE,
          "-1" },
        { "bytes without a word", { { W8(VX_U8) }, NULL, NULL }, VX_ERR_QUANT_FORMAT, "nothing beside it" },
        { "integers without a scale", { { W8(VX_I8) }, NULL, NULL }, VX_ERR_QUANT_FORMAT, "nothing beside it" },
        { "NVFP4 without a marker",
          { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2 }, NULL, NULL },
          VX_ERR_QUANT_FORMAT,
          "order of its scales" },
        { "MXFP8 without a marker", { { W8(VX_F8_E4M3), TILES(VX_U8) }, NULL, NULL }, VX_ERR_QUANT_FORMAT, "cannot be told" },
        { "T28: F8 that lost its scale",
          { { W8(VX_F8_E4M3),
              { "blocks.1.mlp.fc2.weight", VX_F8_E4M3, 2, { N, K }, zeros },
              { "blocks.1.mlp.fc2.weight_scale", VX_F32, 1, { 1 }, ones } },
            NULL,
            NULL },
          VX_ERR_QUANT_SCALE,
          "has no scale" },
        { "metadata that is no JSON", { { W8(VX_I8), SCALE }, NULL, "{" }, VX_ERR_QUANT_FORMAT, "_quantization_metadata" },
        { "metadata without layers",
          { { W8(VX_I8), SCALE }, NULL, "{\"format_version\": \"1.0\"}" },
          VX_ERR_QUANT_FORMAT,
          "'layers'" },
        { "metadata of an absent layer",
          { { W8(VX_I8), SCALE }, NULL, "{\"layers\": {\"blocks.9.mlp.fc2\": {\"format\": \"int8_tensorwise\"}}}" },
          VX_ERR_TENSOR_MISSING,
          "blocks.9.mlp.fc2" },
        { "metadata of an unknown format",
          { { W8(VX_I8), SCALE }, NULL, "{\"layers\": {\"" L "\": {\"format\": \"x\"}}}" },
          VX_ERR_QUANT_FORMAT,
          "'x'" },
        { "another width",
          { { { L ".weight", VX_I8, 2, { N, K / 2 }, zeros }, SCALE }, "{\"format\": \"int8_tensorwise\"}", NULL },
          VX_ERR_TENSOR_SHAPE,
          "[32,32]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_weight w;
        vx_status s = bind(&cases[i].file, &w, NULL);
        if (s.code != cases[i].want || !strstr(s.message, cases[i].part))
            fail_msg("%s: VX-%d '%s'", cases[i].says, s.code, s.message);
        assert_non_null(strstr(s.message, "q.safetensors"));
    }
}

static void fills_up_the_last_tiles(void **state)
{
    (void)state; // 20 rows of 40 columns are stored as 32 of 48
    vx_component *c;
    vx_weight w;
    const layer_file f = { { { L ".weight", VX_U8, 2, { 32, 24 }, zeros }, TILES(VX_F8_E4M3), SCALE_2 },
                           "{\"format\": \"nvfp4\"}",
                           NULL };
    assert_ok(vx_component_open(&c, VX_TRANSFORMER, write_file(&f)));
    assert_ok(vx_component_linear(c, L, 20, 40, false, &w));
    assert_int_equal(w.segment[0].weight.shape[0], 20);
    assert_int_equal(w.segment[0].quant.k, 40);
    assert_ok(vx_quant_check(&w.segment[0].quant, w.segment[0].weight));
    assert_code(vx_component_linear(c, L, 16, 40, false, &w), VX_ERR_TENSOR_SHAPE);
    vx_component_close(&c);
}

// Section 8: what a scale may be, in bytes that opening does not read.
static void refuses_scales_before_the_first_use(void **state)
{
    (void)state;
    static unsigned char tiles[512], eights[N * K];
    static float of_rows[N], factors[K], book[16], correction[K / 32 * N], relative[N * K / 16];
    memset(eights, 0x38, sizeof eights);
    for (int i = 0; i < N; i++) of_rows[i] = 1;
    const layer_file
        fp4 = { { W4(VX_U8), { L ".weight_scale", VX_F8_E4M3, 2, { 128, 4 }, tiles }, SCALE_2 },
                "{\"format\": \"nvfp4\"}",
                NULL },
        mx = { { W8(VX_F8_E4M3), { L ".weight_scale", VX_F8_E8M0, 2, { 128, 4 }, tiles } }, "{\"format\": \"mxfp8\"}", NULL },
        int8 = { { { L ".weight", VX_I8, 2, { N, K }, eights }, { L ".weight_scale", VX_F32, 2, { N, 1 }, of_rows } },
                 "{\"format\": \"int8_tensorwise\"}",
                 NULL },
        fp8 = { { { L ".weight", VX_F8_E4M3, 2, { N, K }, eights }, { L ".weight_scale", VX_F32, 1, { 1 }, of_rows } },
                "{\"format\": \"float8_e4m3fn\"}",
                NULL },
        awq = { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2, { L ".pre_quant_scale", VX_F32, 1, { K }, factors } },
                "{\"format\": \"nvfp4\"}",
                NULL },
        w4a8 = { { W4(VX_I8),
                   { L ".weight_s_rel", VX_F32, 2, { N, K / 32 }, relative },
                   { L ".weight_s_channel", VX_F32, 1, { N }, ones },
                   { L ".weight_codebook", VX_F32, 1, { 16 }, book },
                   { L ".weight_correction", VX_F32, 2, { K / 32, N }, correction } },
                 "{\"format\": \"asym_w4a8_int8\", \"convrot\": false, \"quant_group_size\": 32}",
                 NULL };
    const float infinite = __builtin_inff(), none = 0;
    const struct {
        const char *says;
        const layer_file *file;
        unsigned char *byte; // set to `value`
        int value;
        float *number; // or set to `wrong`
        float wrong, right;
        const char *part;
    } cases[] = {
        { "NaN of E4M3", &fp4, &tiles[5], 0x7f, NULL, 0, 0, "block scale 5 is the byte 0x7f" },
        { "its other NaN", &fp4, &tiles[5], 0xff, NULL, 0, 0, "0xff" },
        { "a negative scale of a block", &fp4, &tiles[5], 0x81, NULL, 0, 0, "neither negative nor NaN" },
        { "NaN of E8M0", &mx, &tiles[5], 0xff, NULL, 0, 0, "less than 0xff" },
        { "a scale of 0 over a row of INT8 that is not", &int8, NULL, 0, &of_rows[5], none, 1, "scale 5 is 0" },
        { "a scale of 0 over FP8 that is not", &fp8, NULL, 0, &of_rows[0], none, 1, "scale 0 is 0" },
        { "a factor of AWQ", &awq, NULL, 0, &factors[5], infinite, 0, "factor of the input 5" },
        { "a codebook", &w4a8, NULL, 0, &book[7], infinite, 0, "codebook entry 7" },
        { "a correction", &w4a8, NULL, 0, &correction[3], infinite, 0, "correction 3" },
        { "a negative relative scale", &w4a8, NULL, 0, &relative[5], -1, 0, "block scale 5 is -1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int damaged = 0; damaged < 2; damaged++) {
            vx_component *c;
            vx_weight w;
            if (cases[i].byte) *cases[i].byte = damaged ? (unsigned char)cases[i].value : 0;
            else *cases[i].number = damaged ? cases[i].wrong : cases[i].right;
            assert_ok(vx_component_open(&c, VX_TRANSFORMER, write_file(cases[i].file)));
            assert_ok(vx_component_check_scales(c)); // nothing is bound
            assert_ok(vx_component_linear(c, L, N, K, false, &w));
            vx_status s = vx_component_check_scales(c);
            if (damaged
                    ? s.code != VX_ERR_QUANT_SCALE || !strstr(s.message, cases[i].part) || !strstr(s.message, L) || !s.remedy[0]
                    : s.code != VX_OK)
                fail_msg("%s (%d): VX-%d '%s'", cases[i].says, damaged, s.code, s.message);
            vx_component_close(&c);
        }
        if (cases[i].byte) *cases[i].byte = 0;
        else *cases[i].number = cases[i].right;
    }
}

// A quantised vector is damage that other tools ship: read, and told.
static void decodes_what_is_no_matrix(void **state)
{
    (void)state;
    vx_component *c;
    vx_tensor t;
    static signed char seven[N * K];
    memset(seven, 7, sizeof seven);
    const layer_file f = { { { L ".weight", VX_I8, 2, { N, K }, seven }, { L ".weight_scale", VX_F32, 1, { 1 }, half_ } },
                           "{\"format\": \"int8_tensorwise\"}",
                           NULL };
    assert_ok(vx_component_open(&c, VX_TRANSFORMER, write_file(&f)));
    assert_ok(vx_component_get(c, L ".weight", VX_DTYPE_NONE, &t, N, K));
    assert_int_equal(t.dtype, VX_F32);
    for (int i = 0; i < N * K; i++) assert_true(vx_f32_of(t)[i] == 3.5f);
    vx_tensor again;
    assert_ok(vx_component_get(c, L ".weight", VX_DTYPE_NONE, &again, N, K));
    assert_ptr_equal(t.data, again.data);
    vx_component_close(&c);
}

static void gives_memory_back_whichever_allocation_fails(void **state)
{
    (void)state;
    const layer_file f = { { W4(VX_U8), TILES(VX_F8_E4M3), SCALE_2, { L ".pre_quant_scale", VX_BF16, 1, { K }, zeros } },
                           NULL,
                           "{\"layers\": {\"" L "\": {\"format\": \"nvfp4\"}}}" };
    const char *path = write_file(&f);
    for (int64_t k = 1, hit = 1; hit; k++) {
        vx_component *c;
        vx_tensor t;
        vx_fault_arm(k, false);
        vx_status s = vx_component_open(&c, VX_TRANSFORMER, path);
        if (s.code == VX_OK) s = vx_component_get(c, L ".weight", VX_DTYPE_NONE, &t, N, K);
        hit = vx_fault_disarm();
        if (s.code != (hit ? VX_ERR_MEMORY : VX_OK)) fail_msg("allocation %d: VX-%d %s", (int)k, s.code, s.message);
        vx_component_close(&c);
        assert_true(k < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(understands_every_style),
        cmocka_unit_test(refuses_every_fault),
        cmocka_unit_test(refuses_scales_before_the_first_use),
        cmocka_unit_test(fills_up_the_last_tiles),
        cmocka_unit_test(decodes_what_is_no_matrix),
        cmocka_unit_test(gives_memory_back_whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
