/* The finest grid of `multigrid.c`, which includes this once with REAL as float and once as double. */

/* ---- From images and back; an image is float, or double if `wide`. ---- */

/* Update the range of each column by one row; `doubts` stays 0 while all values are finite. */
KERNEL void NAME(scan_row)(const REAL *image, const uint8_t *keep, Index n, REAL *restrict lows, REAL *restrict highs,
                           REAL *restrict doubts) {
    for (Index j = 0; j < n; j++) {
        REAL value = keep[j] ? image[j] : 0;
        lows[j] = keep[j] && value < lows[j] ? value : lows[j];
        highs[j] = keep[j] && value > highs[j] ? value : highs[j];
        doubts[j] += 0 * value;
    }
}

/* Find the range of the kept values of one channel; return whether all of them are finite. */
static int NAME(find_range)(Workspace *w, const REAL *image, const uint8_t *keep, double *low, double *high) {
    Index width = w->grid->w;
    REAL *lows = (REAL *)w->sums, *highs = (REAL *)w->range, *doubts = highs + width;
    for (Index j = 0; j < width; j++) lows[j] = INFINITY, highs[j] = -INFINITY, doubts[j] = 0;
    for (Index i = 0; i < w->grid->d * w->grid->h; i++)
        NAME(scan_row)(image + i * width, keep + i * width, width, lows, highs, doubts);
    *low = INFINITY, *high = -INFINITY;
    REAL doubt = 0;
    for (Index j = 0; j < width; j++) {
        *low = lows[j] < *low ? lows[j] : *low;
        *high = highs[j] > *high ? highs[j] : *high;
        doubt += doubts[j];
    }
    return doubt == 0;
}

KERNEL void NAME(load_row)(const void *image, int wide, const uint8_t *keep, Index n, double middle, double scale,
                           REAL *restrict out) {
    const float *narrow_image = image;
    const double *wide_image = image;
    REAL centre = (REAL)middle, factor = (REAL)scale;
    if (wide)
        for (Index j = 0; j < n; j++) out[j] = keep[j] ? ((REAL)wide_image[j] - centre) * factor : 0;
    else
        for (Index j = 0; j < n; j++) out[j] = keep[j] ? ((REAL)narrow_image[j] - centre) * factor : 0;
}

/* Copy kept values, and clip filled ones to the range of those: the exact solution lies there (maximum principle). */
KERNEL void NAME(store_row)(const void *image, int wide, const uint8_t *keep, const REAL *filled, Index n, double low,
                            double high, double scale, void *out) {
    REAL lowest = (REAL)low, highest = (REAL)high, middle = (REAL)(0.5 * low + 0.5 * high), factor = (REAL)(1 / scale);
#define STORE(type)                                                                                        \
    for (Index j = 0; j < n; j++) {                                                                        \
        REAL value = filled[j] * factor + middle;                                                          \
        value = value > lowest ? value : lowest;                                                           \
        ((type *)out)[j] = keep[j] ? ((const type *)image)[j] : (type)(value < highest ? value : highest); \
    }
    if (wide)
        STORE(double)
    else
        STORE(float)
#undef STORE
}

/* ---- Cycles. ---- */

/* Restrict rows of `fine`, of which the first is the one above; `sums` holds a row. */
KERNEL void NAME(restrict_rows)(const REAL *fine, float *restrict out, Index rows, Index width, Index stride,
                                Index coarse_stride, float *restrict sums) {
    sums[0] = sums[stride + 1] = sums[stride + 2] = 0;
    for (Index i = 0; i < rows; i++, out += coarse_stride) {
        const REAL *above = fine + 2 * i * stride, *here = above + stride, *below = here + stride;
        for (Index j = 0; j < stride; j++) sums[j + 1] = (float)(here[j] + 0.5f * (above[j] + below[j]));
        for (Index j = 0; j < width; j++) out[j] = sums[2 * j + 1] + 0.5f * (sums[2 * j] + sums[2 * j + 2]);
    }
}

/* Apply [1, 2, 1] along the row to sums down the columns: Σ weight·neighbour plus four times the pixel itself. */
#define SUM_ACROSS(sums, j) (sums[j] + sums[(j) + 2] + (sums[(j) + 1] + sums[(j) + 1]))

/* Run a damped Jacobi sweep over n numbers in place, and return its largest step; `above` is the row above before
   that was swept. */
KERNEL float NAME(smooth)(REAL *x, const REAL *above, const float *gain, const float *diagonal, Index n, Index stride,
                          float damping, REAL *restrict sums) {
    for (Index j = -1; j < stride; j++) sums[j + 1] = above[j] + x[j + stride] + (x[j] + x[j]);
    for (Index j = stride; j <= n; j++) sums[j + 1] = x[j - stride] + x[j + stride] + (x[j] + x[j]);
    int32_t largest = 0;
    for (Index j = 0; j < n; j++) {
        REAL step = damping * gain[j] * (SUM_ACROSS(sums, j) - diagonal[j] * x[j]);
        x[j] += step;
        largest = larger_size(largest, (float)step);
    }
    return float_of(largest);
}

KERNEL void NAME(miss)(const REAL *x, const float *dip, const float *diagonal, Index n, Index stride,
                       REAL *restrict sums, float *restrict out) {
    for (Index j = -1; j <= n; j++) sums[j + 1] = x[j - stride] + x[j + stride] + (x[j] + x[j]);
    for (Index j = 0; j < n; j++) out[j] = (float)(dip[j] * (SUM_ACROSS(sums, j) - diagonal[j] * x[j]));
}

KERNEL float NAME(add)(REAL *restrict x, const float *dip, const float *changes, Index n, float factor) {
    int32_t largest = 0;
    for (Index j = 0; j < n; j++) {
        float change = factor * dip[j] * changes[j];
        x[j] += change;
        largest = larger_size(largest, change);
    }
    return float_of(largest);
}

/* Add the interpolated correction, times dip and factor, to rows first (even) to last, and return its largest. */
static float NAME(correct)(Workspace *w, const Grid *g, const float *coarse, REAL *x, const float *dip, Index first,
                           Index last, float factor) {
    float largest = 0;
    for (Index start = first; start < last; start += w->block) {
        Index rows = least(w->block, last - start), k = start * g->stride;
        widen(coarse + start / 2 * g[1].stride, rows, g[1].w, g->stride, g[1].stride, w->changes);
        float change = NAME(add)(x + k, dip + k, w->changes, rows * g->stride, factor);
        if (!(change <= largest)) largest = change;
    }
    return largest;
}

/* Smooth rows first to last of one channel, and keep the last of them as it was, for the next block. */
static float NAME(smooth_rows)(Workspace *w, REAL *x, Index c, Index first, Index last, float damping) {
    Index stride = w->grid->stride, k = first * stride;
    REAL *above = (REAL *)w->above + c * (stride + LANES) + LANES, *kept = (REAL *)w->sums + (w->block + 3) * stride;
    memcpy(kept, x + (last - 1) * stride, (size_t)stride * sizeof(REAL));
    float step = NAME(smooth)(x + k, above, w->gain + k, diagonal_rows(w, first, last), (last - first) * stride, stride,
                              damping, (REAL *)w->sums);
    memcpy(above, kept, (size_t)stride * sizeof(REAL));
    return step;
}

/* Smooth on the finest grid and restrict the residual to the next. */
static void NAME(descend_finest)(Workspace *w, REAL *solution) {
    const Grid *g = w->grid;
    Index stride = g->stride;
    memset(w->above, 0, (size_t)(w->channels * (stride + LANES)) * sizeof(double));
    for (Index c = 0; c < w->channels; c++) memset(w->residual + c * w->block_size, 0, (size_t)stride * sizeof(float));
    for (Index first = 0, done = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h), k = first * stride;
        Index ahead = least(last + 1, g->h);      /* the residual of a row needs the smoothed row below it */
        for (Index c = 0; c < w->channels; c++) { /* inside: what they share is still in the cache */
            REAL *x = solution + c * g->plane;
            float *residual = w->residual + c * w->block_size;
            if (ahead > done) NAME(smooth_rows)(w, x, c, done, ahead, PRE);
            NAME(miss)(x + k, w->dip + k, diagonal_rows(w, first, last), (last - first) * stride, stride,
                       (REAL *)w->sums, residual + stride);
            hand_down(w, residual, g[1].b + c * g[1].plane, g, first, last);
        }
        done = ahead;
    }
}

/* Correct and smooth on the finest grid; find the largest correction and the largest step. */
static void NAME(ascend_finest)(Workspace *w, REAL *solution, float *correction, float *step) {
    const Grid *g = w->grid;
    memset(w->above, 0, (size_t)(w->channels * (g->stride + LANES)) * sizeof(double));
    *correction = *step = 0;
    for (Index first = 0, done = 0; first < g->h; first += w->block) {
        Index last = least(first + w->block, g->h);
        Index ready = last == g->h ? last : last - 1; /* the row below the last one is not corrected yet */
        for (Index c = 0; c < w->channels; c++) {
            REAL *x = solution + c * g->plane;
            float change = NAME(correct)(w, g, g[1].x + c * g[1].plane, x, w->dip, first, last, OVERCORRECTION);
            if (!(change <= *correction)) *correction = change;
            change = NAME(smooth_rows)(w, x, c, done, ready, POST);
            if (!(change <= *step)) *step = change;
        }
        done = ready;
    }
}

/* Guess the removed pixels, which are zero on entry. Saves about one cycle compared with a constant. */
static void NAME(guess)(Workspace *w, REAL *solution, const uint8_t *keep) {
    const Grid *g = w->grid, *next = g + 1;
    spread(keep, 1, g->h, g->w, g->stride, w->removed);
    restrict_rows_float(w->removed - g->stride, next->weight, next->h, next->w, g->stride, next->stride, w->changes);
    spread(keep, 0, g->h, g->w, g->stride, w->removed);
    for (Index c = 0; c < w->channels; c++)
        NAME(restrict_rows)(solution + c * g->plane - g->stride, next->x + c * next->plane, next->h, next->w, g->stride,
                            next->stride, w->changes);
    guess_coarse(w);
    for (Index c = 0; c < w->channels; c++)
        NAME(correct)(w, g, next->x + c * next->plane, solution + c * g->plane, w->removed, 0, g->h, 1);
}

#include "multigrid_finest_volume.h"

/* Run Gauss-Seidel on the removed pixels alone, where they are few and each has a kept neighbour; MISSED elsewhere.

   The sweeps contract the error by the largest dip, in the maximum norm, and the bound returned is rigorous. */
static double NAME(relax_scattered)(Workspace *w, REAL *solution, const uint8_t *keep, Index number, double tolerance) {
    const Grid *g = w->grid;
    Index stride = g->stride, found = 0;
    if (is_volume(w) || (double)number > SCATTERED_SHARE * (double)(g->h * g->w)) return MISSED;
    float worst = largest_of(w->dip, g->h * stride);
    if (worst > SCATTERED_DIP) return MISSED;
    for (Index i = 0; i < g->h; i++)
        for (Index j = 0; j < g->w; j++)
            if (!keep[i * g->w + j]) w->places[found++] = (int32_t)(i * stride + j);
    double factor = worst / (1 - worst), bound = 0;
    for (Index c = 0; c < w->channels; c++) {
        REAL *x = solution + c * g->plane, change = 0;
        for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
            change = 0;
            for (Index p = 0; p < number; p++) {
                REAL *here = x + w->places[p], *above = here - stride, *below = here + stride;
                REAL direct = here[-1] + here[1] + above[0] + below[0];
                REAL new = w->gain[w->places[p]] * (direct + direct + (above[-1] + above[1] + below[-1] + below[1]));
                REAL step = new > *here ? new - *here : *here - new;
                change = step > change ? step : change;
                *here = new;
            }
            if (change * factor <= tolerance) break;
        }
        bound = change * factor > bound ? change * factor : bound;
        if (bound > tolerance) { /* rounding keeps the sweeps from settling */
            for (Index d = 0; d <= c; d++)
                for (Index p = 0; p < number; p++) solution[d * g->plane + w->places[p]] = 0;
            return MISSED;
        }
    }
    return bound;
}

static void NAME(load)(Workspace *w, const void *image, int wide, const uint8_t *keep, double scale, REAL *solution) {
    const Grid *g = w->grid;
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->d * g->h; i++) {
            size_t k = (size_t)((c * g->d * g->h + i) * g->w) * (wide ? sizeof(double) : sizeof(float));
            NAME(load_row)((const char *)image + k, wide, keep + i * g->w, g->w, 0.5 * w->low[c] + 0.5 * w->high[c],
                           scale, solution + c * g->plane + row_start(g, i));
        }
}

static void NAME(store)(Workspace *w, const void *image, int wide, const uint8_t *keep, double scale,
                        const REAL *solution, void *out) {
    const Grid *g = w->grid;
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->d * g->h; i++) {
            size_t k = (size_t)((c * g->d * g->h + i) * g->w) * (wide ? sizeof(double) : sizeof(float));
            NAME(store_row)((const char *)image + k, wide, keep + i * g->w, solution + c * g->plane + row_start(g, i),
                            g->w, w->low[c], w->high[c], scale, (char *)out + k);
        }
}

/* Run cycles until the estimated error, which is returned, is within the tolerance; MISSED otherwise. */
static double NAME(run_cycles)(Workspace *w, REAL *solution, double tolerance, double rounding, int64_t most_cycles,
                               int64_t *cycles) {
    double before = INFINITY, previous = INFINITY;
    float correction, step;
    while (*cycles < most_cycles) {
        ++*cycles;
        (is_volume(w) ? NAME(descend_finest_volume) : NAME(descend_finest))(w, solution);
        coarse_cycle(w);
        (is_volume(w) ? NAME(ascend_finest_volume) : NAME(ascend_finest))(w, solution, &correction, &step);
        if (!(correction < DIVERGED)) {
            clear(w); /* NaN times a gain of zero is NaN: it may have spread to where zeros must be */
            return MISSED;
        }
        double rate = fmax(correction / fmax(previous, 1e-300), sqrt(correction / fmax(before, 1e-300)));
        rate = fmin(fmax(rate, *cycles > 2 ? LEAST_RATE : FIRST_RATE), 0.95);
        double estimate = SAFETY * (correction * rate / (1 - rate) + STEP_SHARE * step) + rounding;
        if (*cycles > 1 && estimate <= tolerance) return estimate;
        before = previous, previous = correction;
    }
    return MISSED;
}

/* Solve one image whose range is known; return the estimated error, or the code of a failure. */
static double NAME(solve)(Workspace *w, const void *image, int wide, const uint8_t *keep, Index number, double widest,
                          double tolerance, int64_t most_cycles, void *out, int64_t *cycles) {
    double scale = power_near(1 / widest, wide);
    double rounding = EPSILON * (is_volume(w) ? volume_growth(w, number) : image_growth(w)) * widest * scale;
    *cycles = 0;
    if (!(ROUNDING_LIMIT * rounding <= tolerance * scale)) return MISSED;
    REAL *solution = (REAL *)finest_planes(w, sizeof(REAL) == sizeof(double));
    if (!solution) return NO_MEMORY;
    NAME(load)(w, image, wide, keep, scale, solution);
    double estimate = NAME(relax_scattered)(w, solution, keep, number, tolerance * scale - rounding);
    if (estimate >= 0) {
        estimate += rounding;
    } else {
        (is_volume(w) ? NAME(guess_volume) : NAME(guess))(w, solution, keep);
        (is_volume(w) ? set_up_volume : set_up)(w);
        estimate = NAME(run_cycles)(w, solution, tolerance * scale, rounding, most_cycles, cycles);
        if (estimate < 0) return MISSED;
    }
    NAME(store)(w, image, wide, keep, scale, solution, out);
    return estimate / scale;
}

#undef SUM_ACROSS
