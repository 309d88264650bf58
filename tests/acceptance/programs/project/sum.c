#include "calculate.h"

long sum(const long *numbers, int count) {
    long total = 0;
    for (int i = 0; i < count; i++)
        total += numbers[i];
    return total;
}
