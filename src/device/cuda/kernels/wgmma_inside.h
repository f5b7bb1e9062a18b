// Inside kernels for Hopper: a warpgroup's products of f16 in shared memory. Of other architectures the functions
// are empty; kernels that use them must not be launched there.
#ifndef VX_DEVICE_CUDA_KERNELS_WGMMA_INSIDE_H
#define VX_DEVICE_CUDA_KERNELS_WGMMA_INSIDE_H

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define VX_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define VX_WGMMA(...) ((void)0)
#endif

// What other threads wrote to shared memory, be it by cp.async, and a barrier has shown, may be read by this thread's products. Waits
// for the thread's own copies, too: whoever multiplies has none.
static __device__ __forceinline__ void show_to_groups()
{
    VX_WGMMA("fence.proxy.async.shared::cta;" ::: "memory");
}
// Barriers in shared memory, 8 bytes each: `arrivals` complete a phase; phases are told apart by their parity, 0 first.
static __device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals)
{
    VX_WGMMA("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void barrier_arrive(unsigned barrier)
{
    VX_WGMMA("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives when all cp.async of this thread so far are done.
static __device__ __forceinline__ void barrier_arrive_behind_copies(unsigned barrier)
{
    VX_WGMMA("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and says how many bytes of bulk copies the phase waits for.
static __device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes)
{
    VX_WGMMA("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// 16-byte pieces, counted by the barrier as they come.
static __device__ __forceinline__ void copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    VX_WGMMA("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
             "r"(bytes), "r"(barrier)
             : "memory");
}
static __device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity)
{
    VX_WGMMA("{.reg .pred p;\n"
             "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
             "@!p bra again;}" ::"r"(barrier),
             "r"(parity)
             : "memory");
}
// Registers of each thread of a warpgroup: more than the launch gave, or fewer.
template <int COUNT> static __device__ __forceinline__ void registers_more()
{
    VX_WGMMA("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> static __device__ __forceinline__ void registers_less()
{
    VX_WGMMA("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
static __device__ __forceinline__ void group_begin()
{
    VX_WGMMA("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void group_commit()
{
    VX_WGMMA("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> static __device__ __forceinline__ void group_wait()
{
    VX_WGMMA("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// After a wait, of what the products wrote: nothing that uses these registers moves before it.
template <int NT> static __device__ __forceinline__ void hold(float (&d)[NT][4])
{
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) VX_WGMMA("" : "+f"(d[i / 4][i % 4])::"memory");
}

#define VX_AT_8(d, i)                                                                                             \
    "+f"((d)[i][0]), "+f"((d)[i][1]), "+f"((d)[i][2]), "+f"((d)[i][3]), "+f"((d)[i + 1][0]), "+f"((d)[i + 1][1]), \
        "+f"((d)[i + 1][2]), "+f"((d)[i + 1][3])
#define VX_AT_32(d, i) VX_AT_8(d, i), VX_AT_8(d, i + 2), VX_AT_8(d, i + 4), VX_AT_8(d, i + 6)
#define VX_NAMES_32 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define VX_NAMES_64                                                                                                             \
    VX_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
                "%59,%60,%61,%62,%63"

// 16 numbers of lines of 128 swizzled bytes, groups of eight lines 1024 bytes apart; the address says at which 32 bytes they stand.
static __device__ __forceinline__ uint64_t lines_at(unsigned address)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
// d[64, 8 * NT] (+)= a[64, 16] b[16, 8 * NT], of the four warps that call together: a and columns of b are lines in shared memory. A
// warp has rows 16w to 16w + 15 of d, laid out over its lanes as for mma.m16n8k16.
template <int NT> static __device__ __forceinline__ void group_multiply(float (&d)[NT][4], unsigned a, unsigned b, bool add)
{
    static_assert(NT == 8 || NT == 16, "");
    if constexpr (NT == 16)
        VX_WGMMA("{.reg .pred p; setp.ne.b32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" VX_NAMES_64 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : VX_AT_32(d, 0), VX_AT_32(d, 8)
                 : "l"(lines_at(a)), "l"(lines_at(b)), "r"((int)add));
    else
        VX_WGMMA("{.reg .pred p; setp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" VX_NAMES_32 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : VX_AT_32(d, 0)
                 : "l"(lines_at(a)), "l"(lines_at(b)), "r"((int)add));
}

#endif
