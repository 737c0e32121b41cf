// What `habitat-tui calibrate` runs on the GPU beside cuBLASLt's products.
//
// kernels.ptx is made from this file (README.md says how) and is what the program holds:
// any driver since CUDA 9.0 turns it into code for its GPU, so neither a compiler nor NVRTC
// is needed where it runs. Sizes are in units of 16 bytes.

// One launch and nothing else.
extern "C" __global__ void habitat_empty() {}

// Reads and writes n units.
extern "C" __global__ void habitat_copy(uint4 *__restrict__ out, const uint4 *__restrict__ in, unsigned long long n) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = in[i];
    }
}

// Writes n units.
extern "C" __global__ void habitat_write(uint4 *__restrict__ out, unsigned long long n, unsigned int value) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = make_uint4(value, value, value, value);
    }
}

// Reads n units. The sum is stored only where it has one value in 2^32, so that the reads
// are needed and next to nothing is written.
extern "C" __global__ void habitat_read(unsigned int *__restrict__ sink, const uint4 *__restrict__ in,
                                        unsigned long long n) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned int sum = 0;
#pragma unroll 4
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const uint4 v = in[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9e3779b9u) {
        *sink = sum;
    }
}

// A number between -1 and 1 as e4m3, rounded towards zero.
static __device__ unsigned int e4m3(float value) {
    const unsigned int bits = __float_as_uint(value);
    const int exponent = (int)(bits >> 23 & 0xffu) - 120;
    return (bits >> 24 & 0x80u) | (exponent < 1 ? 0u : (unsigned int)exponent << 3 | (bits >> 20 & 7u));
}

// Fills n 32-bit words with numbers between -1 and 1: of kind 0 one float a word, of kind 1
// two halves, of kind 2 two bfloat16, of kind 3 two e4m3, each twice. Products of zeros draw less power than those of
// numbers and run at higher clocks, so zeros would not do.
extern "C" __global__ void habitat_fill(unsigned int *__restrict__ out, unsigned long long n, unsigned int seed,
                                        unsigned int kind) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned int bits[2];
        float value[2];
        for (unsigned int half = 0; half < 2; half++) {
            // The finaliser of MurmurHash3.
            unsigned int h = (unsigned int)i * 2u + half + seed;
            h ^= h >> 16;
            h *= 0x85ebca6bu;
            h ^= h >> 13;
            h *= 0xc2b2ae35u;
            h ^= h >> 16;
            value[half] = __uint_as_float(0x3f800000u | (h >> 9)) * 2.0f - 3.0f;
            bits[half] = __float_as_uint(value[half]);
        }
        if (kind == 0) {
            out[i] = bits[0];
        } else if (kind == 1) {
            unsigned short low, high;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"(value[0]));
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(value[1]));
            out[i] = (unsigned int)high << 16 | low;
        } else if (kind == 2) {
            out[i] = (bits[1] & 0xffff0000u) | bits[0] >> 16;
        } else {
            out[i] = (e4m3(value[1]) << 8 | e4m3(value[0])) * 0x10001u;
        }
    }
}
