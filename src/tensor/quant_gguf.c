// ggml's block formats (checkpoints specification, 4.4). A block's halves d, m, dmin are f16; products stand as the
// specification writes them, each rounded to f32.
//
//   Q4_0 { d, qs[16] }              Q5_0 { d, qh[4], qs[16] }       Q8_0 { d, qs[32] }
//   Q4_1 { d, m, qs[16] }           Q5_1 { d, m, qh[4], qs[16] }
//   Q2_K { scales[16], qs[64], d, dmin }                Q3_K { hmask[32], qs[64], scales[12], d }
//   Q4_K { d, dmin, scales[12], qs[128] }               Q5_K { d, dmin, scales[12], qh[32], qs[128] }
//   Q6_K { ql[128], qh[64], sc[16], d }
#include "tensor/quant_gguf.h"

#include "tensor/quant.h"

enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

// Names of all that ggml knows, so that a refusal can say what it refuses; block and bytes of those decoded here.
static const struct {
    const char *name;
    int block, bytes;
} types[] = {
    [0] = { "F32", 0, 0 },         [1] = { "F16", 0, 0 },         [Q4_0] = { "Q4_0", 32, 18 },   [Q4_1] = { "Q4_1", 32, 20 },
    [Q5_0] = { "Q5_0", 32, 22 },   [Q5_1] = { "Q5_1", 32, 24 },   [Q8_0] = { "Q8_0", 32, 34 },   [9] = { "Q8_1", 0, 0 },
    [Q2_K] = { "Q2_K", 256, 84 },  [Q3_K] = { "Q3_K", 256, 110 }, [Q4_K] = { "Q4_K", 256, 144 }, [Q5_K] = { "Q5_K", 256, 176 },
    [Q6_K] = { "Q6_K", 256, 210 }, [15] = { "Q8_K", 0, 0 },       [16] = { "IQ2_XXS", 0, 0 },    [17] = { "IQ2_XS", 0, 0 },
    [18] = { "IQ3_XXS", 0, 0 },    [19] = { "IQ1_S", 0, 0 },      [20] = { "IQ4_NL", 0, 0 },     [21] = { "IQ3_S", 0, 0 },
    [22] = { "IQ2_S", 0, 0 },      [23] = { "IQ4_XS", 0, 0 },     [24] = { "I8", 0, 0 },         [25] = { "I16", 0, 0 },
    [26] = { "I32", 0, 0 },        [27] = { "I64", 0, 0 },        [28] = { "F64", 0, 0 },        [29] = { "IQ1_M", 0, 0 },
    [30] = { "BF16", 0, 0 },       [34] = { "TQ1_0", 0, 0 },      [35] = { "TQ2_0", 0, 0 },      [39] = { "MXFP4", 0, 0 },
};

static int known(int type)
{
    return type >= 0 && type < (int)(sizeof types / sizeof types[0]);
}

int vx_gguf_block(int type)
{
    return known(type) ? types[type].block : 0;
}
int vx_gguf_block_bytes(int type)
{
    return known(type) ? types[type].bytes : 0;
}
const char *vx_gguf_name(int type)
{
    return known(type) ? types[type].name : NULL;
}

static float half_at(const uint8_t *p)
{
    return vx_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Q4_0, Q4_1, Q5_0, Q5_1: the first half of the weights in low nibbles, the second in high ones; fifth bits in one word.
static void decode_halves(const uint8_t *qs, uint32_t fifth, int zero, float d, float m, int has_m, float *y)
{
    for (int j = 0; j < 32; j++) {
        const int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
        const int q = (low | (int)(fifth >> j & 1) << 4) - zero;
        y[j] = (float)q * d;
        if (has_m) y[j] += m;
    }
}

static void decode_q8_0(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

// The i-th 6-bit scale and minimum of Q4_K and Q5_K.
static void scale_and_min(const uint8_t *s, int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *min = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

// Q4_K (qh NULL) and Q5_K: eight groups of 32; groups 2c and 2c+1 are the low and high nibbles of 32 bytes.
static void decode_q45_k(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, float *y)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int i = 0; i < 8; i++) {
        int scale, min;
        scale_and_min(b + 4, i, &scale, &min);
        const float ds = d * (float)scale, dm = dmin * (float)min;
        for (int l = 0; l < 32; l++) {
            int q = qs[i / 2 * 32 + l] >> i % 2 * 4 & 15;
            if (qh) q += (qh[l] >> i & 1) * 16;
            y[32 * i + l] = ds * (float)q - dm;
        }
    }
}

static void decode_q6_k(const uint8_t *b, float *y)
{
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *sc = (const int8_t *)b + 192;
    const float d = half_at(b + 208);
    for (int i = 0; i < 256; i++) {
        const int h = i / 128, quarter = i / 32 % 4, l = i % 32, group = i / 16;
        const int low = ql[64 * h + 32 * (quarter & 1) + l] >> (quarter & 2) * 2 & 15;
        const int high = qh[32 * h + l] >> 2 * quarter & 3;
        y[i] = d * (float)sc[group] * (float)((low | high << 4) - 32);
    }
}

static void decode_q2_k(const uint8_t *b, float *y)
{
    const uint8_t *scales = b, *qs = b + 16;
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        const int h = i / 128, j = i / 32 % 4, l = i % 32, sc = scales[i / 16];
        y[i] = d * (float)(sc & 15) * (float)(qs[32 * h + l] >> 2 * j & 3) - dmin * (float)(sc >> 4);
    }
}

static void decode_q3_k(const uint8_t *b, float *y)
{
    const uint8_t *hmask = b, *qs = b + 32, *s = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        const int h = i / 128, j = i / 32 % 4, l = i % 32, g = i / 16;
        const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, scale = (low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
        const int q = (qs[32 * h + l] >> 2 * j & 3) - (hmask[l] >> (4 * h + j) & 1 ? 0 : 4);
        y[i] = d * (float)scale * (float)q;
    }
}

void vx_gguf_decode(int type, const uint8_t *b, float *y)
{
    switch (type) {
    case Q4_0: decode_halves(b + 2, 0, 8, half_at(b), 0, 0, y); break;
    case Q4_1: decode_halves(b + 4, 0, 0, half_at(b), half_at(b + 2), 1, y); break;
    case Q5_0: decode_halves(b + 6, word_at(b + 2), 16, half_at(b), 0, 0, y); break;
    case Q5_1: decode_halves(b + 8, word_at(b + 4), 0, half_at(b), half_at(b + 2), 1, y); break;
    case Q8_0: decode_q8_0(b, y); break;
    case Q2_K: decode_q2_k(b, y); break;
    case Q3_K: decode_q3_k(b, y); break;
    case Q4_K: decode_q45_k(b, NULL, b + 16, y); break;
    case Q5_K: decode_q45_k(b, b + 16, b + 48, y); break;
    case Q6_K: decode_q6_k(b, y); break;
    }
}
