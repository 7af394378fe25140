/* Loops that a compiler turns into whatever vector instructions it may use. */
#if defined(__F16C__)
#include <immintrin.h>
#endif

void multiply_add(float *sum, const float *left, const float *right, int count) {
    for (int i = 0; i < count; i++) {
        sum[i] += left[i] * right[i];
    }
}

void add(int *sum, const int *one, int count) {
    for (int i = 0; i < count; i++) {
        sum[i] += one[i];
    }
}

float widen(unsigned short half) {
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    return half;
#endif
}
