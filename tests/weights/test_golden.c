// Every component of the golden checkpoint, in both layouts: opened, bound, and equal tensor by tensor.
#include "testing.h"

#include "base/str.h"
#include "weights/component.h"

static vx_component *open_golden(vx_component_kind kind, const char *path)
{
    char full[512];
    vx_component *c = NULL;
    snprintf(full, sizeof full, "%s/%s", golden_folder(), path);
    assert_ok(vx_component_open(&c, kind, full));
    return c;
}

static const void *row(vx_tensor t, int64_t i)
{
    return (const char *)t.data + (size_t)(i * t.stride[0] * vx_dtype_bits(t.dtype) / 8);
}

// Row i of the product's columns.
static const void *weight_row(const vx_weight *w, int64_t column)
{
    for (int s = 0; s < w->segments; s++) {
        const vx_weight_segment *g = &w->segment[s];
        if (column >= g->column && column < g->column + g->weight.shape[0]) return row(g->weight, column - g->column);
    }
    fail_msg("no segment has column %d", (int)column);
    return NULL;
}

static void assert_same_qkv(const vx_qkv *a, const vx_qkv *b, int64_t heads, int64_t head_dim)
{
    size_t bytes = (size_t)(a->weight.k * vx_dtype_bits(a->weight.segment[0].weight.dtype) / 8);
    for (int p = 0; p < 3; p++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < head_dim; d++)
                assert_memory_equal(weight_row(&a->weight, a->offset[p] + h * a->head_stride + d),
                                    weight_row(&b->weight, b->offset[p] + h * b->head_stride + d), bytes);
}

static void assert_same_swiglu(const vx_weight *a, bool a_gate_first, const vx_weight *b, bool b_gate_first)
{
    int64_t n = a->n / 2;
    size_t bytes = (size_t)(a->k * vx_dtype_bits(a->segment[0].weight.dtype) / 8);
    for (int64_t i = 0; i < n; i++) {
        assert_memory_equal(weight_row(a, a_gate_first ? i : n + i), weight_row(b, b_gate_first ? i : n + i), bytes);
        assert_memory_equal(weight_row(a, a_gate_first ? n + i : i), weight_row(b, b_gate_first ? n + i : i), bytes);
    }
}

static void gives_the_same_transformer_in_both_layouts(void **state)
{
    (void)state;
    if (!golden_folder()) {
        print_message("skipped: VORTEX_GOLDEN_DATA is not set\n");
        return;
    }
    vx_component *a = open_golden(VX_TRANSFORMER, "official/FL2VA/transformer"),
                 *b = open_golden(VX_TRANSFORMER, "diffusers/transformer");
    assert_int_equal(vx_component_layout(a), VX_LAYOUT_OFFICIAL);
    assert_int_equal(vx_component_layout(b), VX_LAYOUT_DIFFUSERS);
    vx_component *both[2] = { a, b };
    int64_t hidden, layers, refiners, heads, head_dim, ffn;
    for (int i = 0; i < 2; i++) {
        assert_ok(vx_config_int(both[i], "hidden_size", NULL, NULL, &hidden));
        assert_ok(vx_config_int(both[i], "token_refiner_num_layers", "num_refiner_layers", NULL, &refiners));
        assert_ok(vx_config_int(both[i], "num_attention_heads", NULL, NULL, &heads));
        assert_ok(vx_config_int(both[i], "attention_head_dim", NULL, NULL, &head_dim));
        assert_ok(vx_config_int(both[i], "ffn_hidden_size", "ffn_dim", NULL, &ffn));
        assert_ok(vx_component_layers(both[i], "blocks.", ".norm1.weight", &layers));
        assert_int_equal(layers, 3);
    }
    static const char *const plain[] = { "video_patch_proj.weight",
                                         "audio_patch_proj.bias",
                                         "condition_proj.weight",
                                         "time_embedder.proj_in.weight",
                                         "time_embedder.proj_out.bias",
                                         "token_refiner.blocks.1.attn.q_norm.weight",
                                         "token_refiner.final_norm.weight",
                                         "blocks.2.attn.out_proj.weight",
                                         "blocks.0.attn.k_norm.weight",
                                         "blocks.1.mlp.fc2.weight",
                                         "blocks.1.adaln_proj.linear.weight",
                                         "final_layer.norm.weight",
                                         "final_layer.adaln_proj.linear.bias",
                                         "final_layer.video_out.weight",
                                         "final_layer.audio_out.bias" };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        int rank;
        int64_t shape[VX_MAX_RANK];
        vx_tensor x, y;
        vx_component_shape(a, plain[i], &rank, shape);
        assert_ok(vx_component_tensor(a, plain[i], VX_DTYPE_NONE, rank, shape, &x));
        assert_ok(vx_component_tensor(b, plain[i], VX_DTYPE_NONE, rank, shape, &y));
        assert_int_equal(x.dtype, y.dtype);
        assert_memory_equal(x.data, y.data, vx_tensor_bytes(x));
    }
    for (int i = 0; i < layers + refiners; i++) {
        char name[64];
        vx_qkv q[2];
        vx_weight w[2];
        bool gate_first[2];
        const char *prefix = i < layers ? "" : "token_refiner.";
        for (int j = 0; j < 2; j++) {
            snprintf(name, sizeof name, "%sblocks.%d.attn.qkv_proj", prefix, i < layers ? i : i - (int)layers);
            assert_ok(vx_component_qkv(both[j], name, heads, head_dim, hidden, false, &q[j]));
            snprintf(name, sizeof name, "%sblocks.%d.mlp.fc1", prefix, i < layers ? i : i - (int)layers);
            assert_ok(vx_component_swiglu(both[j], name, ffn, hidden, false, &w[j], &gate_first[j]));
        }
        assert_int_equal(q[0].weight.segments, 1);
        assert_int_equal(q[1].weight.segments, 3);
        assert_same_qkv(&q[0], &q[1], heads, head_dim);
        assert_true(gate_first[0] && !gate_first[1]);
        assert_same_swiglu(&w[0], gate_first[0], &w[1], gate_first[1]);
    }
    vx_component_close(&a);
    vx_component_close(&b);
}

static void gives_the_same_video_vae_in_both_layouts(void **state)
{
    (void)state;
    if (!golden_folder()) return;
    vx_component *a = open_golden(VX_VIDEO_VAE, "official/FL2VA/video_vae"), *b = open_golden(VX_VIDEO_VAE, "diffusers/vae");
    vx_component *both[2] = { a, b };
    assert_int_equal(vx_component_layout(a), VX_LAYOUT_OFFICIAL);
    assert_int_equal(vx_component_layout(b), VX_LAYOUT_DIFFUSERS);
    float mean[2][24];
    for (int i = 0; i < 2; i++) {
        int64_t heads;
        bool found = false;
        assert_ok(vx_config_int(both[i], "vit_decoder_kwargs.heads", "decoder_num_attention_heads", NULL, &heads));
        assert_int_equal(heads, 2);
        assert_ok(vx_config_floats(both[i], "latents_mean", 24, mean[i], &found));
        assert_true(found);
    }
    assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
    static const char *const plain[] = { "encoder.conv_in.weight",
                                         "encoder.down.2.block.0.nin_shortcut.weight",
                                         "encoder.down.3.downsample.conv.bias",
                                         "encoder.down.5.block.0.conv2.weight",
                                         "decoder.x_embedder.weight",
                                         "decoder.register_tokens",
                                         "decoder.transformer_blocks.1.attn.to_out.bias",
                                         "decoder.transformer_blocks.1.ff.w2.weight",
                                         "decoder.proj_out.weight",
                                         "quant_conv.weight" };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        int rank;
        int64_t shape[VX_MAX_RANK];
        vx_tensor x, y;
        vx_component_shape(a, plain[i], &rank, shape);
        assert_ok(vx_component_tensor(a, plain[i], VX_F32, rank, shape, &x));
        assert_ok(vx_component_tensor(b, plain[i], VX_F32, rank, shape, &y));
        assert_memory_equal(x.data, y.data, vx_tensor_bytes(x));
    }
    for (int i = 0; i < 3; i++) {
        char name[64];
        vx_qkv q[2];
        vx_weight w[2];
        bool gate_first[2];
        for (int j = 0; j < 2; j++) {
            snprintf(name, sizeof name, "decoder.transformer_blocks.%d.attn.to_qkv", i);
            assert_ok(vx_component_qkv(both[j], name, 2, 64, 128, true, &q[j]));
            snprintf(name, sizeof name, "decoder.transformer_blocks.%d.ff.w1", i);
            assert_ok(vx_component_swiglu(both[j], name, 512, 128, true, &w[j], &gate_first[j]));
        }
        assert_same_qkv(&q[0], &q[1], 2, 64);
        assert_same_swiglu(&w[0], gate_first[0], &w[1], gate_first[1]);
    }
    vx_component_close(&a);
    vx_component_close(&b);
}

static void opens_the_other_components(void **state)
{
    (void)state;
    if (!golden_folder()) return;
    static const struct {
        vx_component_kind kind;
        const char *path, *name;
    } cases[] = {
        { VX_TEXT_ENCODER, "official/FL2VA/text_encoder", "model.language_model.layers.49.mlp.up_proj.weight" },
        { VX_TEXT_ENCODER, "diffusers/text_encoder", "model.visual.pos_embed.weight" },
        { VX_AUDIO_VAE, "official/FL2VA/audio_vae", "decoder.conv_pre.weight_v" },
        { VX_AUDIO_VAE, "diffusers/audio_vae", "decoder.conv_pre.weight_v" },
        { VX_TRANSFORMER, "official/Ref2VA/transformer", "rope.inv_freq" },
        { VX_TRANSFORMER, "diffusers/transformer_ref", "final_layer.audio_out.weight" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vx_component *c = open_golden(cases[i].kind, cases[i].path);
        assert_true(vx_component_has(c, cases[i].name));
        assert_code(vx_component_finish(c), VX_ERR_TENSOR_UNEXPECTED);
        assert_ok(vx_component_check(c));
        vx_component_prefetch(c, NULL, "");
        if (cases[i].kind == VX_AUDIO_VAE) {
            int64_t rate;
            assert_ok(vx_config_int(c, "decoder_dim", NULL, NULL, &rate));
            assert_int_equal(rate, 128);
        }
        vx_component_ignore(c, "");
        assert_ok(vx_component_finish(c));
        vx_component_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_transformer_in_both_layouts),
        cmocka_unit_test(gives_the_same_video_vae_in_both_layouts),
        cmocka_unit_test(opens_the_other_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
