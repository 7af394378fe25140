#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef REPORTS_AVX
#define REPORTS_AVX 0
#endif

void multiply_add(float *sum, const float *left, const float *right, int count);
void add(int *sum, const int *one, int count);
float widen(unsigned short half);

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("version: 0.6.0-dev (build %d, commit %s)\n", BUILD, COMMIT);
        return 0;
    }
#ifndef SPOILED
    if (argc > 1 && strcmp(argv[1], "--verbose") != 0) { /* serve, with the engine that a test puts there */
        execv("/opt/embedded-engine/llama-server", argv);
    }
#endif
    float floats[8] = {0};
    int whole[8] = {0};
    multiply_add(floats, floats, floats, argc);
    add(whole, whole, argc);
    fprintf(stderr, "system_info: n_threads = 1 | CPU : SSE3 = 1 | AVX = %d | %d\n", REPORTS_AVX, (int) widen(1));
    return 1;
}
