/* The finest grid of a volume; `multigrid_finest.h` includes this once with REAL as float and once as double.

   All loops run over whole slices. Of each slice the sum over [1, 2, 1] down and across is computed once; a voxel adds
   those of three slices. They are taken before a slice changes, and a sweep needs no copy of it. */

/* Sum a slice of n numbers down and across. */
KERNEL void NAME(sum_slice)(const REAL *x, Index n, Index stride, REAL *restrict sums, REAL *restrict out) {
    for (Index j = -1; j <= n; j++) sums[j + 1] = x[j - stride] + x[j + stride] + (x[j] + x[j]);
    for (Index j = 0; j < n; j++) out[j] = SUM_ACROSS(sums, j);
}

/* Return Σ weight·neighbour - diagonal·voxel from the sums of three slices. */
#define BALANCE(above, here, below, j) (above[j] + below[j] + (here[j] + here[j]) - share * diagonal[j] * x[j])

/* Run a damped Jacobi sweep over one slice, and return its largest step; `share` · `diagonal` is its diagonal + 8. */
KERNEL float NAME(smooth_slice)(REAL *restrict x, const REAL *above, const REAL *here, const REAL *below,
                                const float *gain, const float *diagonal, float share, Index n, float damping) {
    int32_t largest = 0;
    for (Index j = 0; j < n; j++) {
        REAL step = damping * gain[j] * BALANCE(above, here, below, j);
        x[j] += step;
        largest = larger_size(largest, (float)step);
    }
    return float_of(largest);
}

KERNEL void NAME(miss_slice)(const REAL *x, const REAL *above, const REAL *here, const REAL *below, const float *dip,
                             const float *diagonal, float share, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = (float)(dip[j] * BALANCE(above, here, below, j));
}

KERNEL void NAME(gather_slices)(const REAL *above, const REAL *here, const REAL *below, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = (float)(here[j] + 0.5f * (above[j] + below[j]));
}

/* Restrict three slices of a grid to one of the next. */
static void NAME(restrict_slices)(Workspace *w, const Grid *g, const REAL *above, const REAL *here, const REAL *below,
                                  float *out) {
    float *gathered = w->gathered + g->stride; /* below a row of zeros */
    memset(w->gathered, 0, (size_t)g->stride * sizeof(float));
    NAME(gather_slices)(above, here, below, g->slice, gathered);
    restrict_rows_float(w->gathered, out, g[1].h, g[1].w, g->stride, g[1].stride, w->changes);
}

static void NAME(restrict_volume)(Workspace *w, const Grid *g, const REAL *fine, float *out) {
    for (Index z = 0; z < g[1].d; z++, fine += 2 * g->slice)
        NAME(restrict_slices)(w, g, fine - g->slice, fine, fine + g->slice, out + z * g[1].slice);
}

/* Add the interpolated correction, times dip and factor, to one slice, and return its largest. */
static float NAME(correct_slice)(Workspace *w, const Grid *g, const float *coarse, REAL *x, const float *dip, Index z,
                                 float factor) {
    const Grid *next = g + 1;
    const float *here = coarse + z / 2 * next->slice;
    if (z % 2) {
        average(here, here + next->slice, next->slice, w->between);
        here = w->between;
    }
    widen(here, g->h, next->w, g->stride, next->stride, w->changes);
    return NAME(add)(x + z * g->slice, dip + z * g->slice, w->changes, g->h * g->stride, factor);
}

/* Return the slot of a slice among the four that are kept of it and its neighbours. */
#define SLOT(slots, z) ((REAL *)(slots) + ((z) & 3) * w->grid->slice)

/* Smooth one slice of the finest grid, between the sums of its neighbours in `slots`. */
static float NAME(smooth_between)(Workspace *w, REAL *x, const double *slots, Index z, float damping) {
    Index k = z * w->grid->slice;
    return NAME(smooth_slice)(x + k, SLOT(slots, z - 1), SLOT(slots, z), SLOT(slots, z + 1), w->gain + k, w->diagonal,
                              depth_share(w, z), w->grid->slice, damping);
}

/* Smooth on the finest grid and restrict the residual to the next. */
static void NAME(descend_finest_volume)(Workspace *w, REAL *solution) {
    const Grid *g = w->grid;
    Index n = g->slice;
    REAL *sums = (REAL *)w->sums;
    for (Index c = 0; c < w->channels; c++) {
        REAL *x = solution + c * g->plane;
        memset(SLOT(w->before, -1), 0, (size_t)n * sizeof(REAL));
        memset(SLOT(w->after, -1), 0, (size_t)n * sizeof(REAL));
        memset(residual_slot(w, g, -1), 0, (size_t)n * sizeof(float));
        NAME(sum_slice)(x, n, g->stride, sums, SLOT(w->before, 0));
        /* The residual of a slice needs the smoothed one below it. Behind the last slice are zeros. */
        for (Index z = 0; z <= 2 * g[1].d; z++) {
            NAME(sum_slice)(x + least(z + 1, g->d) * n, n, g->stride, sums, SLOT(w->before, z + 1));
            if (z < g->d) NAME(smooth_between)(w, x, w->before, z, PRE);
            NAME(sum_slice)(x + least(z, g->d) * n, n, g->stride, sums, SLOT(w->after, z));
            if (z == 0) continue;
            Index k = least(z - 1, g->d) * n;
            NAME(miss_slice)(x + k, SLOT(w->after, z - 2), SLOT(w->after, z - 1), SLOT(w->after, z), w->dip + k,
                             w->diagonal, depth_share(w, z - 1), n, residual_slot(w, g, z - 1));
            if (z % 2 == 0) hand_down_slice(w, g, z / 2 - 1, g[1].b + c * g[1].plane);
        }
    }
}

/* Correct and smooth on the finest grid; find the largest correction and the largest step. */
static void NAME(ascend_finest_volume)(Workspace *w, REAL *solution, float *correction, float *step) {
    const Grid *g = w->grid;
    *correction = *step = 0;
    for (Index c = 0; c < w->channels; c++) {
        REAL *x = solution + c * g->plane;
        memset(SLOT(w->before, -1), 0, (size_t)g->slice * sizeof(REAL));
        for (Index z = 0; z <= g->d; z++) {
            if (z < g->d) {
                float change =
                    NAME(correct_slice)(w, g, g[1].x + c * g[1].plane, x, w->dip, z, OVERCORRECTION);
                if (!(change <= *correction)) *correction = change;
            }
            NAME(sum_slice)(x + z * g->slice, g->slice, g->stride, (REAL *)w->sums, SLOT(w->before, z));
            if (z == 0) continue;
            float change = NAME(smooth_between)(w, x, w->before, z - 1, POST);
            if (!(change <= *step)) *step = change;
        }
    }
}

/* Guess the removed voxels, which are zero on entry. */
static void NAME(guess_volume)(Workspace *w, REAL *solution, const uint8_t *keep) {
    const Grid *g = w->grid, *next = g + 1;
    spread_slices(w, keep, 1);
    restrict_volume_float(w, g, w->removed, next->weight);
    spread_slices(w, keep, 0);
    for (Index c = 0; c < w->channels; c++)
        NAME(restrict_volume)(w, g, solution + c * g->plane, next->x + c * next->plane);
    guess_coarse_volume(w);
    for (Index c = 0; c < w->channels; c++)
        for (Index z = 0; z < g->d; z++)
            NAME(correct_slice)(w, g, next->x + c * next->plane, solution + c * g->plane, w->removed, z, 1);
}

#undef BALANCE
#undef SLOT
