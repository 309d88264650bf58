#include "calculate.h"
#include "squares.h"
#include <stdio.h>

int main(void) {
    int count = sizeof squares / sizeof squares[0];
    printf("%ld %ld\n", sum(squares, count), product(squares, 4));
    return 0;
}
