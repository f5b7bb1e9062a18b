// The inverse of the regularised incomplete beta function, for ComfyUI's "beta" list. The function itself by its continued
// fraction, evaluated with the modified Lentz method (NIST Digital Library of Mathematical Functions, 8.17.22); the
// inverse by Newton steps kept inside a shrinking bracket.
#include <float.h>
#include <math.h>

#include "sampling/schedule.h"

// I_x(a, b) for x at or below a/(a+b)-ish, where the fraction converges fast: callers use the symmetry above the middle.
static double beta_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    if (fabs(d) < tiny) d = tiny;
    d = 1 / d;
    double f = d;
    for (int m = 1; m <= 500; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int half = 0; half < 2; half++) {
            double k = half == 0 ? even : odd;
            d = 1 + k * d;
            if (fabs(d) < tiny) d = tiny;
            c = 1 + k / c;
            if (fabs(c) < tiny) c = tiny;
            d = 1 / d;
            f *= d * c;
        }
        if (fabs(d * c - 1) < DBL_EPSILON) break;
    }
    return f;
}

// The density, without its normalising factor's underflow at the ends.
static double beta_density(double x, double a, double b, double log_beta)
{
    return exp((a - 1) * log(x) + (b - 1) * log1p(-x) - log_beta);
}

static double beta_cdf(double x, double a, double b, double log_beta)
{
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    double front = exp(a * log(x) + b * log1p(-x) - log_beta);
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

double vx_beta_ppf(double u, double a, double b)
{
    if (!(u > 0)) return 0;
    if (u >= 1) return 1;
    // Exact by symmetry. It stands half way between two entries of the table, so that the last bit decides which is taken.
    if (a == b && u == 0.5) return 0.5;
    double log_beta = lgamma(a) + lgamma(b) - lgamma(a + b);
    double lo = 0, hi = 1, x = a / (a + b);
    for (int i = 0; i < 200; i++) {
        double error = beta_cdf(x, a, b, log_beta) - u;
        if (error == 0) break;
        if (error > 0) hi = x;
        else lo = x;
        double next = x - error / beta_density(x, a, b, log_beta);
        if (!(next > lo && next < hi)) next = lo + (hi - lo) / 2;
        if (fabs(next - x) <= DBL_EPSILON * x) {
            x = next;
            break;
        }
        x = next;
    }
    return x;
}
