// A component's config.json: any text, every way of asking for its members. What is given lies in its bounds.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "weights/component_inside.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

// The members that the networks ask for, and their other spellings.
static const char *const names[][2] = {
    { "hidden_size", NULL },
    { "token_refiner_num_layers", "num_refiner_layers" },
    { "norm_eps", NULL },
    { "patch_size", NULL },
    { "latents_mean", "latents_std" },
    { "vit_decoder_kwargs.heads", "decoder_num_attention_heads" },
    { "text_config.rope_scaling.mrope_section", NULL },
    { "vision_config.deepstack_visual_indexes", NULL },
    { "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a-component-of-more-than-one-hundred-and-twenty-eight-bytes-which-no-"
      "configuration-has-but-which-must-not-overflow-anything.z",
      "" },
    { ".", ".." },
};

static void ask(const vx_component *c, const char *name, const char *other)
{
    int64_t seven = 7, n = -1, list[3] = { -1, -1, -1 };
    double half = 0.5, d = NAN;
    float f[24];
    bool found;
    if (vx_config_int(c, name, other, &seven, &n).code == VX_OK) must(n >= 1 && n <= VX_CONFIG_MAX);
    if (vx_config_int(c, name, other, NULL, &n).code == VX_OK) must(n >= 1 && n <= VX_CONFIG_MAX);
    if (vx_config_float(c, name, other, &half, &d).code == VX_OK) must(isfinite(d));
    if (vx_config_ints(c, name, 3, list, &found).code == VX_OK && found)
        for (int i = 0; i < 3; i++) must(list[i] >= 0 && list[i] <= VX_CONFIG_MAX);
    if (vx_config_floats(c, name, 24, f, &found).code == VX_OK && found)
        for (int i = 0; i < 24; i++) must(isfinite(f[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[] = "fuzz";
    json_t *config;
    vx_status s = vx_json_parse(&config, (const char *)data, size, 32, VX_ERR_CONFIG, "config.json");
    must((s.code == VX_OK) == (config != NULL) && (config || s.code == VX_ERR_CONFIG));
    vx_component c = { .kind = VX_TRANSFORMER, .path = path, .config_path = path, .config = config };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) ask(&c, names[i][0], names[i][1]);
    json_decref(config);
    return 0;
}
