// Inside kernels on matrix units: the instructions of sm_80 that they share.
#ifndef VX_DEVICE_CUDA_KERNELS_MMA_INSIDE_H
#define VX_DEVICE_CUDA_KERNELS_MMA_INSIDE_H

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
// 16 bytes to shared memory, zeros where `there` is false. Kept near the multiprocessor: others of the block may read them again.
static __device__ __forceinline__ void copy_16(unsigned to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// The same, kept in the L2 alone.
static __device__ __forceinline__ void copy_16_once(unsigned to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> static __device__ __forceinline__ void await()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
// Four 8x8 matrices of 16-bit numbers: lanes 8i to 8i + 7 say where the rows of matrix i are, 16 bytes each; lane l gets numbers
// 2(l%4), +1 of row l/4 of each.
static __device__ __forceinline__ void load_4(unsigned (&r)[4], unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
// d[16, 8] += a[16, 16] b[16, 8], f16 with f32 sums. Lane l has of d columns 2(l%4), +1 of row l/4 in [0], [1] and of row
// l/4 + 8 in [2], [3].
static __device__ __forceinline__ void multiply_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
