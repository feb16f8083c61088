/* The finest grid of `multigrid.c`, which includes this once with REAL as float and once as double. */

#define FINEST(w) ((REAL *)finest_planes(w, sizeof(REAL) == sizeof(double)))

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
    for (Index i = 0; i < w->grid->h; i++) NAME(scan_row)(image + i * width, keep + i * width, width, lows, highs, doubts);
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
#define STORE(type)                                                                                   \
    for (Index j = 0; j < n; j++) {                                                                   \
        REAL value = filled[j] * factor + middle;                                                     \
        value = value > lowest ? value : lowest;                                                      \
        ((type *)out)[j] = keep[j] ? ((const type *)image)[j] : (type)(value < highest ? value : highest); \
    }
    if (wide)
        STORE(double)
    else
        STORE(float)
#undef STORE
}

/* ---- Cycles. ---- */

/* Apply [1, 2, 1] down the columns to n numbers and one to either side. */
static inline __attribute__((always_inline)) void NAME(sum_down)(const REAL *x, Index n, Index stride, REAL *restrict sums) {
    for (Index j = -1; j <= n; j++) sums[j + 1] = x[j - stride] + x[j + stride] + (x[j] + x[j]);
}

/* Apply [1, 2, 1] along the row: after sum_down, Σ weight·neighbour plus four times the pixel itself. */
#define SUM_ACROSS(sums, j) (sums[j] + sums[(j) + 2] + (sums[(j) + 1] + sums[(j) + 1]))

KERNEL void NAME(smooth)(const REAL *x, const float *gain, const float *diagonal, Index n, Index stride,
                         REAL *restrict sums, REAL *restrict out) {
    NAME(sum_down)(x, n, stride, sums);
    for (Index j = 0; j < n; j++) out[j] = x[j] + PRE * gain[j] * (SUM_ACROSS(sums, j) - diagonal[j] * x[j]);
}

KERNEL void NAME(miss)(const REAL *y, const float *dip, const float *diagonal, Index n, Index stride,
                       REAL *restrict sums, float *restrict out) {
    NAME(sum_down)(y, n, stride, sums);
    for (Index j = 0; j < n; j++) out[j] = (float)(dip[j] * (SUM_ACROSS(sums, j) - diagonal[j] * y[j]));
}

KERNEL void NAME(last_smooth)(const REAL *y, const float *gain, const float *diagonal, Index n, Index stride,
                              REAL *restrict sums, REAL *restrict out, float *restrict steps) {
    NAME(sum_down)(y, n, stride, sums);
    for (Index j = 0; j < n; j++) {
        REAL step = POST * gain[j] * (SUM_ACROSS(sums, j) - diagonal[j] * y[j]);
        out[j] = y[j] + step;
        steps[j] = larger(fabsf((float)step), steps[j]);
    }
}

KERNEL void NAME(add)(REAL *restrict y, const float *dip, const float *changes, Index n, float factor,
                      float *restrict largest) {
    if (largest)
        for (Index j = 0; j < n; j++) {
            float change = factor * dip[j] * changes[j];
            y[j] += change;
            largest[j] = larger(fabsf(change), largest[j]);
        }
    else
        for (Index j = 0; j < n; j++) y[j] += factor * dip[j] * changes[j];
}

/* Add the interpolated correction, times dip and factor, to rows first (even) to last, block by block. */
static void NAME(correct)(Workspace *w, const Grid *g, const float *coarse, REAL *y, const float *dip, Index first,
                          Index last, float factor, float *largest) {
    const Grid *next = g + 1;
    for (Index start = first; start < last; start += w->block) {
        Index rows = least(w->block, last - start), k = start * g->stride;
        widen(coarse + start / 2 * next->stride, rows, next->w, g->stride, next->stride, w->changes);
        NAME(add)(y + k, dip + k, w->changes, rows * g->stride, factor, largest);
    }
}

/* Smooth on the finest grid and restrict the residual to the next. */
static void NAME(descend_finest)(Workspace *w, REAL *solution, REAL *smoothed) {
    const Grid *g = w->grid;
    Index stride = g->stride;
    for (Index c = 0; c < w->channels; c++) {
        REAL *x = solution + c * g->plane, *y = smoothed + c * g->plane;
        memset(w->residual, 0, (size_t)stride * sizeof(float));
        for (Index first = 0, done = 0; first < g->h; first += w->block) {
            Index last = least(first + w->block, g->h), k = done * stride;
            Index ahead = least(last + 1, g->h); /* the residual of a row needs the smoothed row below it */
            NAME(smooth)(x + k, w->gain + k, w->diagonal + k, (ahead - done) * stride, stride, (REAL *)w->sums, y + k);
            done = ahead;
            k = first * stride;
            NAME(miss)(y + k, w->dip + k, w->diagonal + k, (last - first) * stride, stride, (REAL *)w->sums, w->residual + stride);
            hand_down(w, w->residual, g[1].b + c * g[1].plane, g, first, last);
        }
    }
}

/* Correct and smooth on the finest grid; find the largest correction and the largest step. */
static void NAME(ascend_finest)(Workspace *w, REAL *solution, REAL *smoothed, double *correction, double *step) {
    const Grid *g = w->grid;
    Index stride = g->stride, size = (w->block + 1) * stride;
    memset(w->corrections, 0, (size_t)size * sizeof(float));
    memset(w->steps, 0, (size_t)size * sizeof(float));
    for (Index c = 0; c < w->channels; c++) {
        REAL *x = solution + c * g->plane, *y = smoothed + c * g->plane;
        for (Index first = 0, done = 0; first < g->h; first += w->block) {
            Index last = least(first + w->block, g->h), k = done * stride;
            NAME(correct)(w, g, g[1].x + c * g[1].plane, y, w->dip, first, last, OVERCORRECTION, w->corrections);
            Index ready = last == g->h ? last : last - 1; /* the row below the last one is not corrected yet */
            NAME(last_smooth)(y + k, w->gain + k, w->diagonal + k, (ready - done) * stride, stride, (REAL *)w->sums, x + k, w->steps);
            done = ready;
        }
    }
    *correction = largest_of(w->corrections, size);
    *step = largest_of(w->steps, size);
}

/* Restrict a plane of the finest grid, for the first guess. */
KERNEL void NAME(restrict_finest)(const REAL *fine, float *restrict out, Index rows, Index width, Index stride,
                                  Index coarse_stride, float *restrict sums) {
    sums[0] = sums[stride + 1] = sums[stride + 2] = 0;
    for (Index i = 0; i < rows; i++, out += coarse_stride) {
        const REAL *here = fine + 2 * i * stride, *above = here - stride, *below = here + stride;
        for (Index j = 0; j < stride; j++) sums[j + 1] = (float)(here[j] + (REAL)0.5 * (above[j] + below[j]));
        for (Index j = 0; j < width; j++) out[j] = sums[2 * j + 1] + 0.5f * (sums[2 * j] + sums[2 * j + 2]);
    }
}

/* Guess the removed pixels, which are zero on entry. Saves about one cycle compared with a constant. */
static void NAME(guess)(Workspace *w, REAL *solution, REAL *known, const uint8_t *keep) {
    const Grid *g = w->grid, *next = g + 1;
    for (Index i = 0; i < g->h; i++)
        for (Index j = 0; j < g->w; j++) known[i * g->stride + j] = keep[i * g->w + j];
    NAME(restrict_finest)(known, next->weight, next->h, next->w, g->stride, next->stride, w->changes);
    for (Index c = 0; c < w->channels; c++)
        NAME(restrict_finest)(solution + c * g->plane, next->x + c * next->plane, next->h, next->w, g->stride,
                              next->stride, w->changes);
    guess_coarse(w);
    for (Index c = 0; c < w->channels; c++)
        NAME(correct)(w, g, next->x + c * next->plane, solution + c * g->plane, w->removed, 0, g->h, 1, NULL);
}

/* Run Gauss-Seidel on the removed pixels alone, where they are few and each has a kept neighbour; MISSED elsewhere.

   The sweeps contract the error by the largest dip, in the maximum norm, so that the bound returned is rigorous. */
static double NAME(relax_scattered)(Workspace *w, REAL *solution, const uint8_t *keep, Index number, double tolerance) {
    const Grid *g = w->grid;
    Index stride = g->stride, found = 0;
    if ((double)number > SCATTERED_SHARE * (double)(g->h * g->w)) return MISSED;
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

/* Solve one image whose range is known; return the estimated error, or the code of a failure. */
static double NAME(solve)(Workspace *w, const void *image, int wide, const uint8_t *keep, Index number, double scale,
                          double tolerance, int64_t most_cycles, void *out, int64_t *cycles) {
    const Grid *g = w->grid;
    Index pixels = g->h * g->w;
    double longer = (double)most(g->h, g->w), shorter = (double)least(g->h, g->w), widest = 0;
    for (Index c = 0; c < w->channels; c++) widest = fmax(widest, w->high[c] - w->low[c]);
    /* Rounding adds about this where few pixels are kept, seldom more than ROUNDING_LIMIT times as much. */
    double rounding = EPSILON * sqrt(longer * longer * longer / shorter) * widest * scale, estimate = MISSED;
    tolerance *= scale;
    *cycles = 0;
    if (!(ROUNDING_LIMIT * rounding <= tolerance)) return MISSED;
    REAL *solution = FINEST(w), *smoothed = solution + w->channels * g->plane;
    if (!solution) return NO_MEMORY;
    size_t item = wide ? sizeof(double) : sizeof(float);
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->h; i++)
            NAME(load_row)((const char *)image + (size_t)(c * pixels + i * g->w) * item, wide, keep + i * g->w, g->w,
                           0.5 * w->low[c] + 0.5 * w->high[c], scale, solution + c * g->plane + i * g->stride);
    double bound = NAME(relax_scattered)(w, solution, keep, number, tolerance - rounding);
    if (bound >= 0) {
        estimate = bound + rounding;
    } else {
        NAME(guess)(w, solution, smoothed, keep);
        set_up(w);
        double before = INFINITY, previous = INFINITY, correction, step;
        while (estimate < 0 && *cycles < most_cycles) {
            ++*cycles;
            NAME(descend_finest)(w, solution, smoothed);
            coarse_cycle(w);
            NAME(ascend_finest)(w, solution, smoothed, &correction, &step);
            if (!(correction < DIVERGED)) break;
            double rate = fmax(correction / fmax(previous, 1e-300), sqrt(correction / fmax(before, 1e-300)));
            rate = fmin(fmax(rate, *cycles > 2 ? LEAST_RATE : FIRST_RATE), 0.95);
            double error = SAFETY * (correction * rate / (1 - rate) + STEP_SHARE * step) + rounding;
            before = previous, previous = correction;
            if (*cycles > 1 && error <= tolerance) estimate = error;
        }
    }
    if (estimate < 0) return MISSED;
    for (Index c = 0; c < w->channels; c++)
        for (Index i = 0; i < g->h; i++) {
            size_t k = (size_t)(c * pixels + i * g->w) * item;
            NAME(store_row)((const char *)image + k, wide, keep + i * g->w, solution + c * g->plane + i * g->stride,
                            g->w, w->low[c], w->high[c], scale, (char *)out + k);
        }
    return estimate / scale;
}

#undef FINEST
#undef SUM_ACROSS
