// Monotonic seconds.
#ifndef VX_BASE_CLOCK_H
#define VX_BASE_CLOCK_H
double vx_clock_s(void);
#endif
