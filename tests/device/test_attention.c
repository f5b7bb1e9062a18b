// vx_attention against softmax(scale q k^T) v in double precision, and against itself at every level and thread count.
#include "products.h"

#include <stdbool.h>

typedef struct case_ {
    const char *says;
    int64_t sq, skv, heads, kv_heads, d;
    vx_dtype t;
    bool causal, interleaved; // interleaved: q, k, v are parts of one [tokens, heads, 3, d] tensor
    float scale;              // 0: the default
    float spread;             // the queries are multiplied by it: large ones make the running maximum move
} case_;

static const case_ cases[] = {
    { "f32, one query, one key", 1, 1, 1, 1, 8, VX_F32, false, false, 0, 1 },
    { "f32, tails everywhere", 33, 45, 3, 3, 24, VX_F32, false, false, 0, 3 },
    { "f32, several key blocks", 150, 1100, 2, 2, 64, VX_F32, false, false, 0, 5 },
    { "f32, interleaved", 40, 40, 3, 3, 64, VX_F32, false, true, 0.3f, 2 },
    { "f32, causal over blocks", 700, 700, 1, 1, 40, VX_F32, true, false, 0, 5 },
    { "f32, negative scale", 20, 530, 1, 1, 16, VX_F32, false, false, -0.5f, 5 },
    { "f32, widest head", 20, 70, 1, 1, 256, VX_F32, false, false, 0, 5 },
    { "bf16, odd number of keys", 30, 75, 2, 2, 128, VX_BF16, false, false, 0, 5 },
    { "bf16, last block of one key", 30, 513, 1, 1, 128, VX_BF16, false, false, 0, 10 },
    { "bf16, grouped heads, causal", 140, 140, 8, 2, 128, VX_BF16, true, false, 0, 5 },
    { "bf16, interleaved, several key blocks", 600, 600, 2, 2, 128, VX_BF16, false, true, 0, 10 },
    { "bf16, more keys than are packed at a time", 2, 17000, 4, 2, 256, VX_BF16, false, false, 0, 5 },
    { "bf16, narrow head", 50, 50, 4, 1, 8, VX_BF16, false, false, 0, 5 },
    { "f16, interleaved, odd number of keys", 75, 75, 3, 3, 64, VX_F16, false, true, 0, 5 },
    { "f16, several key blocks, causal", 600, 600, 2, 1, 72, VX_F16, true, false, 0, 5 },
};

typedef struct operands {
    vx_tensor q, k, v;
    void *memory[3];
} operands;

static vx_tensor view(void *data, vx_dtype t, int64_t tokens, int64_t heads, int64_t d, int64_t token_stride, int64_t head_stride)
{
    vx_tensor x = vx_tensor_of(data, t, tokens, heads, d);
    x.stride[0] = token_stride;
    x.stride[1] = head_stride;
    return x;
}

static operands make_operands(const case_ *c)
{
    operands o = { 0 };
    const size_t size = element_size(c->t);
    if (c->interleaved) {
        const int64_t stride = c->heads * 3 * c->d;
        char *p = o.memory[0] = make_numbers(c->t, c->sq * stride, 0, 11);
        o.q = view(p, c->t, c->sq, c->heads, c->d, stride, 3 * c->d);
        o.k = view(p + (size_t)c->d * size, c->t, c->sq, c->heads, c->d, stride, 3 * c->d);
        o.v = view(p + (size_t)c->d * 2 * size, c->t, c->sq, c->heads, c->d, stride, 3 * c->d);
    } else {
        enum { GAP = 8 };
        const int64_t heads[3] = { c->heads, c->kv_heads, c->kv_heads }, tokens[3] = { c->sq, c->skv, c->skv };
        vx_tensor *t[3] = { &o.q, &o.k, &o.v };
        for (int i = 0; i < 3; i++) {
            o.memory[i] = make_numbers(c->t, tokens[i] * (heads[i] * c->d + GAP), 0, 20 + (uint64_t)i);
            *t[i] = view(o.memory[i], c->t, tokens[i], heads[i], c->d, heads[i] * c->d + GAP, c->d);
        }
    }
    for (int64_t i = 0; i < c->sq; i++) {
        for (int64_t j = 0; j < c->heads * c->d; j++) {
            const int64_t at = i * o.q.stride[0] + j / c->d * o.q.stride[1] + j % c->d;
            put(o.q.data, c->t, at, round_to(c->t, get(o.q.data, c->t, at) * c->spread));
        }
    }
    return o;
}

// out[h] of query i in double precision, and the same of |v|.
static void attend_by_the_book(const case_ *c, const operands *o, int64_t i, int64_t h, double *out, double *magnitude)
{
    const int64_t g = h / (c->heads / c->kv_heads), keys = c->causal ? i + 1 : c->skv;
    const double scale = c->scale != 0 ? (double)c->scale : 1 / sqrt((double)c->d);
    double *s = vx_alloc_array((size_t)keys, sizeof *s), max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t x = 0; x < c->d; x++)
            s[j] += (double)get(o->q.data, c->t, i * o->q.stride[0] + h * o->q.stride[1] + x) *
                    (double)get(o->k.data, c->t, j * o->k.stride[0] + g * o->k.stride[1] + x);
        s[j] *= scale;
        max = s[j] > max ? s[j] : max;
    }
    for (int64_t x = 0; x < c->d; x++) out[x] = magnitude[x] = 0;
    for (int64_t j = 0; j < keys; j++) {
        const double e = exp(s[j] - max);
        sum += e;
        for (int64_t x = 0; x < c->d; x++) {
            const double v = (double)get(o->v.data, c->t, j * o->v.stride[0] + g * o->v.stride[1] + x);
            out[x] += e * v;
            magnitude[x] += e * fabs(v);
        }
    }
    for (int64_t x = 0; x < c->d; x++) {
        out[x] /= sum;
        magnitude[x] /= sum;
    }
    vx_free(s);
}

// Root mean square of the difference over that of sum p |v|, which is what rounding errors are in proportion to (the result
// itself cancels): 3e-7 for f32; for bf16 4e-3, of which the rounding of the weights and the result to 8 bits make nearly all.
static void assert_close(const case_ *c, const operands *o, const void *got)
{
    double out[256], magnitude[256], difference = 0, size = 0;
    const int64_t step = c->sq > 100 ? 7 : 1;
    for (int64_t i = 0; i < c->sq; i += step) {
        for (int64_t h = 0; h < c->heads; h++) {
            attend_by_the_book(c, o, i, h, out, magnitude);
            for (int64_t x = 0; x < c->d; x++) {
                const double d = (double)get(got, c->t, (i * c->heads + h) * c->d + x) - out[x];
                difference += d * d;
                size += magnitude[x] * magnitude[x];
            }
        }
    }
    const double relative = sqrt(difference / size), allowed = c->t == VX_F32 ? 3e-7 : c->t == VX_F16 ? 5e-4 : 4e-3;
    if (!(relative <= allowed)) fail_msg("%s: off by %g, allowed %g", c->says, relative, allowed);
}

static void run_case(const case_ *c)
{
    operands o = make_operands(c);
    const int64_t count = c->sq * c->heads * c->d;
    void *first = NULL;
    for (int l = 0; l < LEVELS; l++) {
        for (int t = 0; t < THREAD_COUNTS; t++) {
            vx_device *dev = make_device(levels[l], thread_counts[t]);
            void *out = make_numbers(c->t, count, 0, 5);
            assert_ok(vx_attention(dev, vx_tensor_of(out, c->t, c->sq, c->heads, c->d), o.q, o.k, o.v,
                                   &(vx_attention_params){ .scale = c->scale, .causal = c->causal }));
            vx_device_destroy(&dev);
            if (!first) {
                first = out;
                assert_close(c, &o, first);
                continue;
            }
            char where[128];
            snprintf(where, sizeof where, "%s, %s, %d threads", c->says, levels[l], thread_counts[t]);
            assert_same_bits(out, first, count, c->t, where);
            free_numbers(out, 0);
        }
    }
    free_numbers(first, 0);
    for (int i = 0; i < 3; i++) vx_free(o.memory[i]);
}

static void is_near_the_definition_and_the_same_at_every_level(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

// The arithmetic of one row written out in scalars: weights rounded before the product, the sum of unrounded ones in 32
// parts, pairs with the odd key first, one division at the end.
static void rounds_where_the_header_says(void **state)
{
    (void)state;
    enum { KEYS = 45, D = 8 };
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    for (int n = 0; n < 3; n++) {
        const vx_dtype t = types[n];
        void *q = make_numbers(t, D, 0, 1), *k = make_numbers(t, KEYS * D, 0, 2), *v = make_numbers(t, KEYS * D, 0, 3);
        for (int x = 0; x < D; x++) put(q, t, x, round_to(t, 9 * get(q, t, x)));
        float s[KEYS], max = -INFINITY, part[32] = { 0 }, want[D];
        const float scale = 1.0f / sqrtf(D);
        for (int j = 0; j < KEYS; j++) {
            s[j] = 0;
            for (int x = 0; x < D; x++) {
                const int at = t == VX_BF16 ? x ^ 1 : x;
                s[j] = fmaf(get(q, t, at), get(k, t, j * D + at), s[j]);
            }
            s[j] = s[j] * scale;
            max = s[j] > max ? s[j] : max;
        }
        for (int j = 0; j < KEYS; j++) {
            s[j] = vx_expf(s[j] - max);
            part[j % 32] = part[j % 32] + s[j];
        }
        for (int o = 16; o >= 1; o /= 2) {
            float old[32];
            memcpy(old, part, sizeof part);
            for (int l = 0; l < 32; l++) part[l] = old[l] + old[l ^ o];
        }
        for (int x = 0; x < D; x++) {
            float sum = 0;
            for (int j = 0; j < KEYS; j++) {
                const int at = t == VX_BF16 && (j ^ 1) < KEYS ? j ^ 1 : j;
                sum = fmaf(round_to(t, s[at]), get(v, t, at * D + x), sum);
            }
            want[x] = round_to(t, sum / part[0]);
        }
        void *out = make_numbers(t, D, 0, 4);
        vx_device *dev = make_device(NULL, 1);
        assert_ok(vx_attention(dev, vx_tensor_of(out, t, 1, 1, D), vx_tensor_of(q, t, 1, 1, D), vx_tensor_of(k, t, KEYS, 1, D),
                               vx_tensor_of(v, t, KEYS, 1, D), NULL));
        for (int x = 0; x < D; x++) {
            const float got = get(out, t, x);
            assert_same_bits(&got, &want[x], 1, VX_F32, "one row");
        }
        vx_device_destroy(&dev);
        free_numbers(q, 0);
        free_numbers(k, 0);
        free_numbers(v, 0);
        free_numbers(out, 0);
    }
}

static void a_nan_key_spoils_every_query_that_sees_it(void **state)
{
    (void)state;
    enum { S = 100, D = 16 };
    for (int l = 0; l < LEVELS; l++) {
        float *q = make_numbers(VX_F32, S * D, 0, 1), *k = make_numbers(VX_F32, S * D, 0, 2),
              *out = make_numbers(VX_F32, S * D, 0, 3);
        k[60 * D + 3] = NAN;
        vx_tensor tq = vx_tensor_of(q, VX_F32, S, 1, D), tk = vx_tensor_of(k, VX_F32, S, 1, D);
        vx_device *dev = make_device(levels[l], 1);
        assert_ok(vx_attention(dev, vx_tensor_of(out, VX_F32, S, 1, D), tq, tk, tq, &(vx_attention_params){ .causal = true }));
        for (int i = 0; i < S * D; i++) assert_int_equal(isnan(out[i]) != 0, i / D >= 60);
        vx_device_destroy(&dev);
        free_numbers(q, 0);
        free_numbers(k, 0);
        free_numbers(out, 0);
    }
}

// Items one below the other in one tensor, or with the keys of one for all: each as if it were alone.
static void items_have_the_bits_of_their_own_calls(void **state)
{
    (void)state;
    enum { ITEMS = 3, S = 150, KEYS = 530, HEADS = 4, SHARED = 2, D = 24 };
    static const vx_dtype types[] = { VX_F32, VX_BF16, VX_F16 };
    for (int n = 0; n < 3 * LEVELS * 3; n++) {
        const vx_dtype t = types[n % 3];
        const int kind = n / 3 / LEVELS; // plain, causal, one set of keys
        const int64_t keys = kind == 1 ? S : KEYS, count = ITEMS * S * HEADS * D;
        void *q = make_numbers(t, count, 0, 1), *k = make_numbers(t, ITEMS * KEYS * SHARED * D, 0, 2),
             *v = make_numbers(t, ITEMS * KEYS * SHARED * D, 0, 3), *together = make_numbers(t, count, 0, 4),
             *apart = make_numbers(t, count, 0, 4);
        vx_tensor tq = vx_tensor_of(q, t, ITEMS, S, HEADS, D), tk = vx_tensor_of(k, t, ITEMS, keys, SHARED, D),
                  tv = vx_tensor_of(v, t, ITEMS, keys, SHARED, D), out = vx_tensor_of(together, t, ITEMS, S, HEADS, D);
        if (kind == 2) tk.stride[0] = tv.stride[0] = 0;
        const vx_attention_params params = { .causal = kind == 1 };
        vx_device *dev = make_device(levels[n / 3 % LEVELS], 2);
        assert_ok(vx_attention(dev, out, tq, tk, tv, &params));
        out.data = apart;
        for (int i = 0; i < ITEMS; i++)
            assert_ok(vx_attention(dev, vx_tensor_row(out, i), vx_tensor_row(tq, i), vx_tensor_row(tk, i), vx_tensor_row(tv, i),
                                   &params));
        assert_same_bits(together, apart, count, t, levels[n / 3 % LEVELS]);
        vx_device_destroy(&dev);
        void *all[] = { q, k, v, together, apart };
        for (int i = 0; i < 5; i++) free_numbers(all[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_near_the_definition_and_the_same_at_every_level),
        cmocka_unit_test(rounds_where_the_header_says),
        cmocka_unit_test(a_nan_key_spoils_every_query_that_sees_it),
        cmocka_unit_test(items_have_the_bits_of_their_own_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
