// The pretty audio VAE: latents 0..3 are the loudness of four notes. From stage to stage each note travels as a pair of
// channels, cosine and sine; a transposed convolution turns the pair by the time between its taps and fades linearly between
// neighbours, so that the note is exact at every rate. The notes are whole multiples of the latents' rate: a latent begins
// where the one before has ended. The fifth stage adds the pairs up, the last two interpolate. Residual blocks add nothing;
// the last activation adds a little second harmonic.
#include <math.h>
#include <string.h>

#include "demo/pretty.h"
#include "tensor/mathf.h"

enum { LATENT_RATE = 40, SUM_STAGE = 4 };
static const float loudness = 0.09f, swell = 0.05f; // of one note: at latent 0, and for each 1 more

// PyTorch's weight norm: g is the length of v along everything but axis 0. A row of zeros has no direction, so it gets one of
// length 0.
static void put_lengths(vx_demo_tensors *set)
{
    for (int k = 0; k < set->count; k++) {
        vx_demo_tensor *v = &set->tensor[k];
        size_t size = strlen(v->name);
        if (size < 9 || strcmp(v->name + size - 9, ".weight_v") != 0) continue;
        vx_demo_tensor *g = vx_demo_get(set, "%.*s.weight_g", (int)(size - 9), v->name);
        int64_t row = v->count / v->shape[0];
        for (int64_t i = 0; i < v->shape[0]; i++) {
            double sum = 0.0;
            for (int64_t j = 0; j < row; j++) sum += (double)v->value[i * row + j] * (double)v->value[i * row + j];
            g->value[i] = (float)sqrt(sum);
            if (sum == 0.0) v->value[i * row] = 1.0f;
        }
    }
}

// Taps of one stage: how much of an input sample a tap carries, and how long after the sample's own time it stands.
typedef struct stage {
    vx_demo_tensor *weight;  // [in, out, taps]
    int taps, rate, samples; // rate: output samples for an input sample; samples: in a second, after this stage
} stage;

static float share(const stage *s, int tap)
{
    float distance = fabsf((float)tap - 0.5f * (float)(s->taps - 1));
    return 1.0f - distance / (float)s->rate;
}

static float turn(const stage *s, int tap, int note)
{
    float periods = (float)vx_demo_note_hz[note] * ((float)tap - 0.5f * (float)(s->taps - 1)) / (float)s->samples;
    return 6.2831853f * periods;
}

static float *tap_of(const stage *s, int in, int out, int tap)
{
    return vx_demo_at(s->weight, in, (int64_t)out * s->taps + tap);
}

static void begin_notes(const stage *s)
{
    for (int note = 0; note < VX_DEMO_NOTES; note++)
        for (int tap = 0; tap < s->taps; tap++) {
            *tap_of(s, note, 2 * note, tap) = share(s, tap) * vx_cosf(turn(s, tap, note));
            *tap_of(s, note, 2 * note + 1, tap) = share(s, tap) * vx_sinf(turn(s, tap, note));
        }
}

static void turn_notes(const stage *s, bool sum)
{
    for (int note = 0; note < VX_DEMO_NOTES; note++)
        for (int tap = 0; tap < s->taps; tap++) {
            const float part = share(s, tap), c = part * vx_cosf(turn(s, tap, note)), d = part * vx_sinf(turn(s, tap, note));
            const int cosine = 2 * note, sine = 2 * note + 1, to = sum ? 0 : sine;
            *tap_of(s, cosine, to, tap) = d;
            *tap_of(s, sine, to, tap) = c;
            if (sum) continue;
            *tap_of(s, cosine, cosine, tap) = c;
            *tap_of(s, sine, cosine, tap) = -d;
        }
}

static void put_stages(vx_demo_tensors *set)
{
    stage s = { .samples = LATENT_RATE };
    for (int i = 0; i < VX_DEMO_STAGES; i++) {
        s.weight = vx_demo_get(set, "decoder.ups.%d.0.weight_v", i);
        s.taps = (int)s.weight->shape[2];
        s.rate = vx_demo_rates[i];
        s.samples *= s.rate;
        if (i == 0) begin_notes(&s);
        else if (i <= SUM_STAGE) turn_notes(&s, i == SUM_STAGE);
        else
            for (int tap = 0; tap < s.taps; tap++) *tap_of(&s, 0, 0, tap) = share(&s, tap);
    }
}

vx_status vx_demo_pretty_audio(vx_demo_tensors *set, const vx_demo_sizes *z, uint64_t seed)
{
    (void)z;
    int first = 0; // of the encoder's, which are the last
    while (strncmp(set->tensor[first].name, "encoder.", 8) != 0) first++;
    vx_demo_randomise(&(vx_demo_tensors){ .tensor = &set->tensor[first], .count = set->count - first }, seed, 1.0f);
    vx_demo_tensor *in = vx_demo_get(set, "dec_in_proj.weight"), *bias = vx_demo_get(set, "dec_in_proj.bias");
    vx_demo_tensor *pre = vx_demo_get(set, "decoder.conv_pre.weight_v");
    for (int note = 0; note < VX_DEMO_NOTES; note++) {
        *vx_demo_at(in, note, note) = swell;
        bias->value[note] = loudness;
        for (int tap = 0; tap < 7; tap++) *vx_demo_at(pre, note, note * 7 + tap) = (4.0f - fabsf((float)tap - 3.0f)) / 16.0f;
    }
    put_stages(set);
    vx_demo_fill(vx_demo_get(set, "decoder.activation_post.act.alpha"), 1.4f); // sin(4 x)^2 / 55
    vx_demo_fill(vx_demo_get(set, "decoder.activation_post.act.beta"), 4.0f);
    *vx_demo_at(vx_demo_get(set, "decoder.conv_post.weight_v"), 0, 3) = 1.0f;
    put_lengths(set);
    return vx_ok();
}
