// The CPU device: its life, its memory, its table.
#include "device/cpu/cpu.h"
#include "base/alloc.h"
#include "device/cpu/rows.h"
#include <string.h>

static void cpu_release(vx_device *dev)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    if (cpu->scratch) vx_pages_free(cpu->scratch, cpu->scratch_size);
    cpu->scratch = NULL;
    cpu->scratch_size = 0;
}

static vx_status cpu_reserve(vx_device *dev, size_t bytes)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    if (bytes <= cpu->scratch_size) return vx_ok();
    cpu_release(dev); // first: the two together might not fit
    VX_TRY_IN(vx_pages_alloc(&cpu->scratch, bytes), "scratch of the CPU device");
    cpu->scratch_size = bytes;
    return vx_ok();
}

vx_status vx_cpu_scratch(vx_cpu *cpu, size_t bytes, void **out)
{
    if (bytes > cpu->scratch_size) {
        VX_TRY(cpu_reserve(&cpu->base, bytes));
        cpu->scratch_growths++;
    }
    *out = cpu->scratch;
    return vx_ok();
}

static void cpu_destroy(vx_device *dev)
{
    vx_cpu *cpu = vx_cpu_of(dev);
    cpu_release(dev);
    vx_pool_destroy(&cpu->pool);
    vx_free(cpu);
}

static const char *cpu_isa(const vx_device *dev)
{
    return vx_isa_name(vx_cpu_of_const(dev)->isa);
}
static int cpu_threads(const vx_device *dev)
{
    return vx_cpu_of_const(dev)->threads;
}

static vx_status cpu_memory_alloc(vx_device *dev, void **out, size_t bytes)
{
    (void)dev;
    return vx_pages_alloc(out, bytes);
}

static void cpu_memory_free(vx_device *dev, void *p, size_t bytes)
{
    (void)dev;
    vx_pages_free(p, bytes);
}

static vx_status cpu_upload(vx_device *dev, vx_tensor to, const void *from)
{
    (void)dev;
    memcpy(to.data, from, vx_tensor_bytes(to));
    return vx_ok();
}

static vx_status cpu_download(vx_device *dev, void *to, vx_tensor from)
{
    (void)dev;
    memcpy(to, from.data, vx_tensor_bytes(from));
    return vx_ok();
}

static vx_status cpu_sync(vx_device *dev)
{
    (void)dev; // every operator is complete on return
    return vx_ok();
}

static const struct vx_ops cpu_ops = { .destroy = cpu_destroy,
                                       .isa = cpu_isa,
                                       .threads = cpu_threads,
                                       .memory_alloc = cpu_memory_alloc,
                                       .memory_free = cpu_memory_free,
                                       .reserve = cpu_reserve,
                                       .release = cpu_release,
                                       .upload = cpu_upload,
                                       .download = cpu_download,
                                       .sync = cpu_sync,
#define MEMBER(op) .op = vx_cpu_##op,
                                       VX_OPERATORS(MEMBER)
#undef MEMBER
#define MEMBER(op) .op##_scratch = vx_cpu_##op##_scratch,
                                           VX_SCRATCH_OPERATORS(MEMBER)
#undef MEMBER
};

vx_status vx_device_cpu_create(vx_device **out, const vx_cpu_params *params)
{
    const vx_cpu_params p = params ? *params : (vx_cpu_params){ 0 };
    vx_isa isa;
    *out = NULL;
    VX_TRY(vx_isa_choose(&isa, p.isa));
    if (p.threads < 0) return vx_fail(VX_ERR_RANGE, "%d threads, expected 0 (all processors) or more", p.threads);
    vx_cpu *cpu = vx_alloc_array(1, sizeof *cpu);
    VX_NEED_MEMORY(cpu, "the CPU device");
    cpu->base = (vx_device){ .ops = &cpu_ops, .name = "cpu", .computes = true };
    cpu->isa = isa;
    cpu->rows = vx_row_kernels_for((int)isa);
    vx_status s = vx_pool_create(&cpu->pool, p.threads);
    if (s.code == VX_OK) {
        cpu->threads = vx_pool_threads(cpu->pool);
        s = vx_device_born(&cpu->base);
    }
    if (s.code != VX_OK) {
        cpu_destroy(&cpu->base);
        return s;
    }
    *out = &cpu->base;
    return vx_ok();
}
