/* A library with thread-locals, one of them with an initial value. Built and loaded by ../dlopen.rs. */

static __thread int count = 7;
static __thread int calls;
static __thread char wide[5000];

int next(void) {
    calls++;
    wide[count % sizeof wide]++;
    return count++;
}

/* What all calls of this thread have left behind. */
int left(void) {
    int sum = 0;
    for (unsigned i = 0; i < sizeof wide; i++)
        sum += wide[i];
    return sum == calls ? calls : -1;
}
