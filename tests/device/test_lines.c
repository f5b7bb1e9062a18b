// Lines of one call against a call for each of them: the four operators of sound, bit for bit, whatever lies between rows, and
// whether a line's channels or a channel's lines stand side by side.
#include "products.h"

#include <stdbool.h>

typedef enum op { CONV, CONV_TRANSPOSE, SNAKE, SNAKE_ALIAS_FREE } op;
typedef struct case_ {
    const char *says;
    op op;
    int64_t ci, co, kernel, stride, padding, dilation, length, out_length;
} case_;

static const case_ cases[] = {
    { "one channel to one", CONV, 1, 1, 7, 1, 3, 1, 100, 100 },
    { "a window for all rows, several stretches", CONV, 8, 8, 11, 1, 25, 5, 1300, 1300 },
    { "shared windows, one stretch of a line", CONV, 70, 120, 11, 1, 5, 1, 90, 90 },
    { "shared windows, filled in several turns", CONV, 600, 150, 3, 1, 1, 1, 3000, 3000 },
    { "pointwise", CONV, 33, 40, 1, 1, 0, 1, 67, 67 },
    { "strided by five", CONV, 20, 24, 10, 5, 3, 1, 1000, 200 },
    { "padding longer than the line", CONV, 4, 4, 5, 1, 40, 1, 3, 79 },
    { "transposed by two", CONV_TRANSPOSE, 32, 16, 4, 2, 1, 1, 700, 1400 },
    { "transposed by five, many channels", CONV_TRANSPOSE, 540, 60, 9, 5, 2, 1, 41, 205 },
    { "transposed with phases without taps", CONV_TRANSPOSE, 2, 2, 2, 3, 0, 1, 3, 8 },
    { "snake, one sample", SNAKE, 3, 3, 0, 1, 0, 1, 1, 1 },
    { "snake, several stretches", SNAKE, 3, 3, 0, 1, 0, 1, 9001, 9001 },
    { "alias-free, one sample", SNAKE_ALIAS_FREE, 3, 3, 0, 1, 0, 1, 1, 1 },
    { "alias-free, several stretches", SNAKE_ALIAS_FREE, 5, 5, 0, 1, 0, 1, 2100, 2100 },
};
static const int64_t line_counts[] = { 1, 2, 3 };

// What a call needs beside x and out.
typedef struct numbers {
    float *w, *bias, *alpha, *beta, *up, *down;
} numbers;

static vx_status run(vx_device *dev, const case_ *c, const numbers *n, vx_tensor out, vx_tensor x, vx_tensor residual)
{
    if (c->op == SNAKE) return vx_snake(dev, out, x, vx_tensor_of(n->alpha, VX_F32, c->ci));
    if (c->op == SNAKE_ALIAS_FREE)
        return vx_snake_alias_free(dev, out, x, vx_tensor_of(n->alpha, VX_F32, c->ci), vx_tensor_of(n->beta, VX_F32, c->ci),
                                   vx_tensor_of(n->up, VX_F32, 12), vx_tensor_of(n->down, VX_F32, 12));
    const vx_conv1d_params p = { c->stride, c->padding, c->dilation, vx_tensor_of(n->bias, VX_F32, c->co), residual };
    return c->op == CONV ? vx_conv1d(dev, out, x, vx_tensor_of(n->w, VX_F32, c->co, c->ci, c->kernel), &p)
                         : vx_conv_transpose1d(dev, out, x, vx_tensor_of(n->w, VX_F32, c->ci, c->co, c->kernel), &p);
}

// [channels, lines, length] with a gap behind every row; `apart`: a line's channels follow one another, not a channel's lines.
static vx_tensor laid_out(void *data, int64_t channels, int64_t lines, int64_t length, bool apart)
{
    enum { GAP = 3 };
    vx_tensor t = vx_tensor_of(data, VX_F32, channels, lines, length);
    const int64_t row = length + GAP;
    t.stride[0] = apart ? row : row * lines + GAP;
    t.stride[1] = apart ? row * channels + 2 * GAP : row;
    return t;
}
static int64_t span_of(vx_tensor t)
{
    return t.shape[0] * t.stride[0] + t.shape[1] * t.stride[1];
}
static vx_tensor line_of(vx_tensor t, int64_t line)
{
    if (t.rank == 0) return t;
    vx_tensor one = vx_tensor_of((float *)t.data + line * t.stride[1], VX_F32, t.shape[0], t.shape[2]);
    one.stride[0] = t.stride[0];
    return one;
}

enum { PLAIN, IN_PLACE, WITH_RESIDUAL, WAYS }; // in place: out is the residual, of a snake x
static int ways_of(op o)
{
    return o == SNAKE_ALIAS_FREE ? PLAIN + 1 : o == SNAKE ? IN_PLACE + 1 : WAYS;
}

static void run_case(const case_ *c, int64_t lines, int way, bool apart)
{
    const bool self = c->op == SNAKE && way == IN_PLACE;
    vx_tensor x = laid_out(NULL, c->ci, lines, c->length, apart), out = laid_out(NULL, c->co, lines, c->out_length, !apart);
    if (self) out = x;
    vx_tensor residual = laid_out(NULL, c->co, lines, c->out_length, apart);
    x.data = make_numbers(VX_F32, span_of(x), 0, 1);
    residual.data = make_numbers(VX_F32, span_of(residual), 0, 4);
    const numbers n = { .w = make_numbers(VX_F32, c->ci * c->co * c->kernel, 0, 2),
                        .bias = make_numbers(VX_F32, c->co, 0, 3),
                        .alpha = make_numbers(VX_F32, c->ci, 0, 5),
                        .beta = make_numbers(VX_F32, c->ci, 0, 6),
                        .up = make_numbers(VX_F32, 12, 0, 7),
                        .down = make_numbers(VX_F32, 12, 0, 8) };
    const int64_t span = span_of(out);
    float *want = out.data = make_numbers(VX_F32, span, 0, 9);
    vx_device *single = make_device(NULL, 1);
    if (self) memcpy(want, x.data, (size_t)span * 4);
    for (int64_t line = 0; line < lines; line++) {
        const vx_tensor y = line_of(out, line);
        const vx_tensor r = way == WITH_RESIDUAL ? line_of(residual, line) : way == IN_PLACE ? y : (vx_tensor){ 0 };
        assert_ok(run(single, c, &n, y, self ? y : line_of(x, line), r));
    }
    vx_device_destroy(&single);
    for (int t = 0; t < THREAD_COUNTS; t++) {
        vx_device *dev = make_device(NULL, thread_counts[t]);
        float *got = out.data = make_numbers(VX_F32, span, 0, 9);
        if (self) memcpy(got, x.data, (size_t)span * 4);
        assert_ok(run(dev, c, &n, out, self ? out : x,
                      way == WITH_RESIDUAL ? residual
                      : way == IN_PLACE    ? out
                                           : (vx_tensor){ 0 }));
        char where[128];
        snprintf(where, sizeof where, "%s, %lld lines, way %d, %d threads", c->says, (long long)lines, way, thread_counts[t]);
        assert_same_bits(got, want, span, VX_F32, where);
        free_numbers(got, 0);
        vx_device_destroy(&dev);
    }
    void *all[] = { x.data, residual.data, n.w, n.bias, n.alpha, n.beta, n.up, n.down, want };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_numbers(all[i], 0);
}

static void lines_have_the_bits_of_calls_of_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int l = 0; l < 3; l++)
            for (int way = 0; way < ways_of(cases[i].op); way++)
                for (int apart = 0; apart < 2; apart++) run_case(&cases[i], line_counts[l], way, apart);
}

static void no_lines_are_no_work(void **state)
{
    (void)state;
    vx_device *dev = make_device(NULL, 1);
    float w[2 * 3 * 3] = { 0 };
    assert_ok(vx_conv1d(dev, vx_tensor_of(NULL, VX_F32, 2, 0, 8), vx_tensor_of(NULL, VX_F32, 3, 0, 8),
                        vx_tensor_of(w, VX_F32, 2, 3, 3), &(vx_conv1d_params){ .padding = 1 }));
    assert_ok(
        vx_snake(dev, vx_tensor_of(NULL, VX_F32, 3, 0, 8), vx_tensor_of(NULL, VX_F32, 3, 0, 8), vx_tensor_of(w, VX_F32, 3)));
    vx_device_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_the_bits_of_calls_of_their_own),
        cmocka_unit_test(no_lines_are_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
