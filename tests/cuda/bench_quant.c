// Decoding on the card: a matrix of 5376 x 5376 in every format to bf16, medians of 9 runs by events; bytes are those read and
// written. Random bytes.
#include "card.h"

#include "device/quantised.h"

enum { N = 5376, REPEATS = 9, WARM = 3 };

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    vx_device *card = make_card();
    vx_cuda *cuda = vx_cuda_of(card);
    vx_arena *arena = NULL;
    cudaEvent_t begin, end;
    if (vx_arena_create(card, &arena, (size_t)N * N * 2 + 4096).code != VX_OK) return 1;
    const vx_tensor out = vx_arena_tensor(arena, VX_BF16, N, N);
    if (cudaEventCreate(&begin) || cudaEventCreate(&end)) return 1;
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i].rotate == 64 && formats[i].kind == VX_QUANT_W4A8) continue;
        matrix m = make_matrix(&formats[i], N, N, 0, 1);
        const vx_weight_segment segment = { .weight = m.values, .quant = m.quant };
        float ms[REPEATS];
        for (int run = -WARM; run < REPEATS; run++) {
            cudaEventRecord(begin, cuda->stream);
            if (vx_cuda_decode(cuda, &segment, 0, N, VX_BF16, false, out.data).code != VX_OK) return 1;
            cudaEventRecord(end, cuda->stream);
            if (cudaEventSynchronize(end)) return 1;
            if (run >= 0) cudaEventElapsedTime(&ms[run], begin, end);
        }
        qsort(ms, REPEATS, sizeof *ms, by_size);
        const double bytes = (double)N * N * (2 + vx_quant_bits(&m.quant, m.values.dtype) / 8);
        printf("%-20s %7.3f ms %7.0f GB/s\n", formats[i].says, (double)ms[REPEATS / 2], bytes / (double)ms[REPEATS / 2] * 1e-6);
        fflush(stdout);
        vx_device_forget(card, NULL, 0);
        free_matrix(&m);
    }
    vx_arena_destroy(&arena);
    vx_device_destroy(&card);
    return 0;
}
