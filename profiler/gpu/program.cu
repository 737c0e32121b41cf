// A CUDA program that is not PyTorch: steps of eight kernels in an NVTX range each, for as many
// seconds as its argument says. nvcc -o program program.cu
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nvtx3/nvToolsExt.h>

__global__ void scale(float *x, float by, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= by;
}

__global__ void product(const float *a, const float *b, float *c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

int main(int count, char **arguments) {
    const int side = 1024, elements = side * side;
    double seconds = count > 1 ? atof(arguments[1]) : 10;
    float *a, *b, *c;
    if (cudaMalloc(&a, 4 * elements) || cudaMalloc(&b, 4 * elements) || cudaMalloc(&c, 4 * elements)) return 1;
    cudaMemset(a, 0, 4 * elements);
    cudaMemset(b, 0, 4 * elements);
    auto began = std::chrono::steady_clock::now();
    int step = 0;
    for (; std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() < seconds; ++step) {
        char name[32];
        snprintf(name, sizeof name, "step %d", step);
        nvtxRangePushA(name);
        for (int i = 0; i < 6; ++i) scale<<<256, 256>>>(a, 0.5f, elements);
        for (int i = 0; i < 2; ++i) product<<<dim3(side / 16, side / 16), dim3(16, 16)>>>(a, b, c, side);
        if (cudaDeviceSynchronize()) return 1;
        nvtxRangePop();
    }
    printf("steps %d\n", step);
    return cudaGetLastError() != cudaSuccess;
}
