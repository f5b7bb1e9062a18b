// Adapters whose settings cannot be told from the file alone, by the names that they are published under (checkpoints
// specification 5.1, denoiser specification 6.8). More particular entries stand first.
#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "weights/adapter.h"

static const char sparse[] = "trained with sparse attention (VSA), which is not run here: every row attends to every row";
static const char guessed[] = "its publisher does not name the shift; that of its sisters is taken";

static const vx_adapter_preset table[] = {
    { "lightx2v fl2v 4-step v1.2 768p",
      { "fl2v", "4step", "v1.2" },
      8,
      4,
      6,
      3,
      VX_TURBO_OFFICIAL,
      1,
      VX_VARIANT_FL2VA,
      guessed },
    { "lightx2v fl2v 4-step v1.1 768p", { "fl2v", "4step", "v1.1" }, 128, 4, 6, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_FL2VA, NULL },
    { "lightx2v fl2v 4-step v1.0 768p", { "fl2v", "4step", "v1.0" }, 128, 4, 6, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_FL2VA, NULL },
    { "lightx2v fl2v 4-step v0.1, renamed by Wan2GP",
      { "fl2v", "4step", "v0.1", "alpha16" },
      16,
      4,
      12,
      3,
      VX_TURBO_OFFICIAL,
      0.5f,
      VX_VARIANT_FL2VA,
      NULL },
    { "lightx2v fl2v 4-step v0.1", { "fl2v", "4step", "v0.1" }, 8, 4, 12, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_FL2VA, NULL },
    { "lightx2v fl2v 8-step v1.0", { "fl2v", "8step", "v1.0" }, 8, 8, 12, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_FL2VA, NULL },
    { "lightx2v ref2v 4-step v0.1", { "ref2v", "4step", "v0.1" }, 8, 4, 12, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_REF2VA, NULL },
    { "lightx2v ref2v 8-step v1.0", { "ref2v", "8step", "v1.0" }, 8, 8, 12, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_REF2VA, NULL },
    { "larryvrh v1", { "ckpt850" }, 0, 4, 12, 3, VX_TURBO_SIMPLE, 0.5f, VX_VARIANT_FL2VA, NULL },
    { "larryvrh v4", { "step600" }, 0, 4, 12, 3, VX_TURBO_SIMPLE, 1, VX_VARIANT_FL2VA, NULL },
    { "alibaba-pai FL2VA 8-step", { "fl2va", "acc", "8step" }, 64, 8, 12, 3, VX_TURBO_BANK, 1, VX_VARIANT_FL2VA, NULL },
    { "alibaba-pai Ref2VA 8-step", { "ref2va", "acc", "8step" }, 64, 8, 12, 3, VX_TURBO_BANK, 1, VX_VARIANT_REF2VA, NULL },
    { "FastH3 8-step", { "fasth3", "8step" }, 0, 8, 10, 3, VX_TURBO_RUNGS, 1, VX_VARIANT_FL2VA, sparse },
    { "FastH3 4-step", { "fasth3", "4step" }, 0, 4, 12, 3, VX_TURBO_OFFICIAL, 1, VX_VARIANT_FL2VA, sparse },
};

static bool all_in(const char *name, const vx_adapter_preset *p)
{
    for (int i = 0; i < 4 && p->piece[i]; i++)
        if (!strstr(name, p->piece[i])) return false;
    return true;
}

const vx_adapter_preset *vx_adapter_preset_of(const char *path)
{
    char name[256];
    size_t n = 0;
    for (const char *s = vx_path_name(path); *s && n < sizeof name - 1; s++)
        if (!strchr("-_ ", *s)) name[n++] = (char)tolower((unsigned char)*s);
    name[n] = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (all_in(name, &table[i])) return &table[i];
    return NULL;
}
