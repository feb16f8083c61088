/* The coarse grids of volumes for `multigrid.c`: as in `multigrid_coarse.h`, with 27 coefficients at each point.

   Coefficient k is that of the neighbour dx + 3 dy + 9 dz = k. Those from 0 to 13 are stored; that of -k at a point is
   that of k at the neighbour -k. */

/* Return how far the neighbour k is. */
static Index reach(const Grid *g, int k) {
    int code = k + 13;
    return (code % 3 - 1) + (code / 3 % 3 - 1) * g->stride + (code / 9 - 1) * g->slice;
}

/* ---- Cycles. ---- */

/* Add both couplings along one direction to the sums of n numbers. */
KERNEL void couple(const float *a, const float *x, Index offset, Index n, float *restrict sums) {
    const float *opposite = a - offset, *ahead = x + offset, *back = x - offset;
    for (Index j = 0; j < n; j++) sums[j] += a[j] * ahead[j] + opposite[j] * back[j];
}

KERNEL void multiply(const float *a, const float *x, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = a[j] * x[j];
}

KERNEL void step_towards(const float *sums, const float *b, const float *share, const float *base, float factor,
                         Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = base[j] + factor * share[j] * (b[j] - sums[j]);
}

/* Compute base + factor·share·(b - A x) for one slice. */
static void sweep_slice(Workspace *w, const Grid *g, const float *x, const float *b, const float *share,
                        const float *base, float factor, Index z, float *out) {
    Index k = z * g->slice, n = g->slice;
    float *sums = (float *)w->sums;
    multiply(g->a + k, x + k, n, sums);
    for (int p = 1; p < COUPLINGS; p++) couple(g->a + p * g->plane + k, x + k, reach(g, p), n, sums);
    step_towards(sums, b + k, share + k, base, factor, n, out);
}

/* Run one damped Jacobi sweep over one channel. */
static void relax_volume(Workspace *w, const Grid *g, const float *x, const float *b, float *out) {
    for (Index z = 0; z < g->d; z++)
        sweep_slice(w, g, x, b, g->a + VOLUME_INVERSE * g->plane, x + z * g->slice, COARSE_DAMPING, z,
                    out + z * g->slice);
}

/* Restrict the residual of slices 2Z - 1, 2Z and 2Z + 1 to slice Z. */
static void hand_down_slice(Workspace *w, const Grid *g, Index z, float *rhs) {
    restrict_slices_float(w, g, residual_slot(w, g, 2 * z - 1), residual_slot(w, g, 2 * z),
                          residual_slot(w, g, 2 * z + 1), rhs + z * g[1].slice);
}

/* Smooth on a coarse grid, from zero if it is fresh, and restrict the residual to the next. */
static void descend_volume(Workspace *w, const Grid *g, int fresh) {
    for (Index c = 0; c < w->channels; c++) {
        const float *b = g->b + c * g->plane;
        float *y = g->y + c * g->plane;
        if (fresh)
            first_sweep(g->a + VOLUME_INVERSE * g->plane, b, g->d * g->slice, y);
        else
            relax_volume(w, g, g->x + c * g->plane, b, y);
        memset(residual_slot(w, g, -1), 0, (size_t)g->slice * sizeof(float));
        for (Index z = 0; z < 2 * g[1].d; z++) {
            float *residual = residual_slot(w, g, z);
            if (z < g->d)
                sweep_slice(w, g, y, b, g->a + VOLUME_DIP * g->plane, w->zeros, 1, z, residual);
            else
                memset(residual, 0, (size_t)g->slice * sizeof(float));
            if (z % 2) hand_down_slice(w, g, z / 2, g[1].b + c * g[1].plane);
        }
    }
}

/* Correct and smooth on a coarse grid. */
static void ascend_volume(Workspace *w, const Grid *g) {
    for (Index c = 0; c < w->channels; c++) {
        float *y = g->y + c * g->plane;
        for (Index z = 0; z < g->d; z++)
            correct_slice_float(w, g, g[1].x + c * g[1].plane, y, g->a + VOLUME_DIP * g->plane, z, 1);
        relax_volume(w, g, y, g->b + c * g->plane, g->x + c * g->plane);
    }
}

/* Factorise the coarsest operator, as `factor` does. */
static void factor_volume(Workspace *w) {
    const Grid *g = w->grid + w->grids - 1;
    Index D = g->d, H = g->h, W = g->w, length = band_length(g);
    memset(w->band, 0, (size_t)((D * H * W + length) * length) * sizeof(double));
    for (Index z = 0; z < D; z++)
        for (Index i = 0; i < H; i++)
            for (Index j = 0; j < W; j++)
                for (int p = 0; p < COUPLINGS; p++) {
                    Index z2 = z + (p + 13) / 9 - 1, i2 = i + (p + 13) / 3 % 3 - 1, j2 = j + (p + 13) % 3 - 1;
                    if (z2 >= D || i2 < 0 || i2 >= H || j2 < 0 || j2 >= W) continue;
                    Index here = (z * H + i) * W + j, there = (z2 * H + i2) * W + j2;
                    w->band[here * length + there - here] += g->a[p * g->plane + z * g->slice + i * g->stride + j];
                }
    for (Index k = 0; k < D * H * W; k++)
        eliminate(w->band + k * length, length, g->a[k / (H * W) * g->slice + k / W % H * g->stride + k % W]);
}

/* ---- Operators, which depend on what is kept alone. ---- */

KERNEL void scale_coupling(const float *a, const float *dip, Index offset, Index n, float *restrict out) {
    const float *there = dip + offset;
    for (Index j = 0; j < n; j++) out[j] = a[j] * dip[j] * there[j];
}

KERNEL void scale_weight(float weight, const float *dip, Index offset, Index n, float *restrict out) {
    const float *there = dip + offset;
    for (Index j = 0; j < n; j++) out[j] = weight * dip[j] * there[j];
}

KERNEL void scale_diagonal(const float *diagonal, float share, const float *dip, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = (share * diagonal[j] - 8) * dip[j] * dip[j];
}

/* Scale the stencils of one slice: each coefficient times the dips at both of its ends. */
static void scale_slice(Workspace *w, const Grid *g, Index z) {
    Index n = g->slice, k = z * n;
    if (g == w->grid) scale_diagonal(w->diagonal, depth_share(w, z), w->dip + k, n, w->scaled);
    for (int p = g == w->grid; p < COUPLINGS; p++) {
        int zeros = (p + 13) / 9 == 1; /* steps of the offset that are zero: its weight is 2 to that power */
        zeros += ((p + 13) / 3 % 3 == 1) + ((p + 13) % 3 == 1);
        if (g == w->grid)
            scale_weight(-(float)(1 << zeros), w->dip + k, reach(g, p), n, w->scaled + p * n);
        else
            scale_coupling(g->a + p * g->plane + k, g->a + VOLUME_DIP * g->plane + k, reach(g, p), n,
                           w->scaled + p * n);
    }
}

/* Where a fold reads: its first coefficient at 2J - 1, 2J and 2J + 1 along the axis, for all J of a loop. */
typedef struct {
    const float *at[3];
    Index distance; /* from one coefficient to the next */
    Index down;     /* from a row to the next; points of a row lie side by side */
    int axis;       /* 1 across, 3 down, 9 in depth: the coefficient of the neighbour along it */
} Fold;

/* Return coefficient k at one of the three points. */
static const float *coefficient(const Fold *f, int k, int point) {
    if (k >= 0) return f->at[point] + k * f->distance;
    int dx = (k + 13) % 3 - 1, dy = (k + 13) / 3 % 3 - 1, dz = (k + 13) / 9 - 1;
    if (f->axis == 1) return f->at[point + dx] - k * f->distance;
    if (f->axis == 3) return f->at[point + dy] - k * f->distance + dx;
    return f->at[point + dz] - k * f->distance + dx + dy * f->down;
}

KERNEL void fold_middle(const float *before, const float *here, const float *after, const float *to_here,
                        const float *from_here, const float *back_from_here, const float *back_to_here, Index n,
                        float *restrict out) {
    for (Index j = 0; j < n; j++) {
        float joined = to_here[j] + from_here[j] + (back_from_here[j] + back_to_here[j]);
        out[j] = here[j] + 0.25f * (before[j] + after[j]) + 0.5f * joined;
    }
}

KERNEL void fold_side(const float *between, const float *first, const float *second, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) out[j] = 0.25f * between[j] + 0.5f * (first[j] + second[j]);
}

/* Compute the Galerkin product along one axis, for n points: point J gathers points 2J - 1, 2J and 2J + 1. */
static void fold(const Fold *f, Index n, float *out, Index out_distance) {
    enum { BEFORE, HERE, AFTER };
    for (int k = 0; k < COUPLINGS; k++, out += out_distance) {
        int step = (k + 13) / f->axis % 3 - 1, still = k - step * f->axis, ahead = still + f->axis;
        int back = still - f->axis;
        if (step == 1)
            fold_side(coefficient(f, still, AFTER), coefficient(f, ahead, HERE), coefficient(f, ahead, AFTER), n, out);
        else if (step == -1)
            fold_side(coefficient(f, still, BEFORE), coefficient(f, back, BEFORE), coefficient(f, back, HERE), n, out);
        else
            fold_middle(coefficient(f, still, BEFORE), coefficient(f, still, HERE), coefficient(f, still, AFTER),
                        coefficient(f, ahead, BEFORE), coefficient(f, ahead, HERE), coefficient(f, back, HERE),
                        coefficient(f, back, AFTER), n, out);
    }
}

/* Fold the columns and rows of one slice, which is scaled, into a slice of the next grid. */
static void fold_slice(Workspace *w, const Grid *g, float *out) {
    const Grid *next = g + 1;
    Index half = g->stride / 2, n = g->slice / 2, size = n + half; /* with a row of zeros above the first */
    for (int p = 0; p < COUPLINGS; p++) {
        split_columns(w->scaled + p * g->slice, w->odd + p * size, w->even + p * size, n);
        memset(w->folded + p * size, 0, (size_t)half * sizeof(float));
    }
    Fold columns = {.at = {w->odd, w->even, w->odd + 1}, .distance = size, .axis = 1};
    fold(&columns, n, w->folded + half, size);
    memset(out, 0, (size_t)(COUPLINGS * next->slice) * sizeof(float));
    for (Index i = 0; i < next->h; i++) {
        const float *above = w->folded + 2 * i * half;
        Fold rows = {.at = {above, above + half, above + 2 * half}, .distance = size, .axis = 3};
        fold(&rows, half, out + i * next->stride, next->slice);
    }
}

/* Compute the operator of the next coarser grid. */
static void galerkin_volume(Workspace *w, const Grid *g) {
    const Grid *next = g + 1;
    Index size = COUPLINGS * next->slice;
    float *slots = w->slices; /* of four slices with folded columns and rows */
    memset(slots + 3 * size, 0, (size_t)size * sizeof(float));
    for (Index z = 0; z < 2 * next->d; z++) {
        float *slot = slots + (z & 3) * size;
        if (z < g->d) {
            scale_slice(w, g, z);
            fold_slice(w, g, slot);
        } else {
            memset(slot, 0, (size_t)size * sizeof(float));
        }
        if (z % 2 == 0) continue;
        Fold depth = {.at = {slots + ((z - 2) & 3) * size, slots + ((z - 1) & 3) * size, slot},
                      .distance = next->slice,
                      .down = next->stride,
                      .axis = 9};
        fold(&depth, next->h * next->stride, next->a + z / 2 * next->slice, next->plane);
    }
}

KERNEL void add_coupling(const float *a, Index offset, Index n, float *restrict positive, float *restrict total) {
    const float *opposite = a - offset;
    for (Index j = 0; j < n; j++) {
        positive[j] += larger(a[j], 0) + larger(opposite[j], 0);
        total[j] += a[j] + opposite[j];
    }
}

/* Set up the coarse grids. */
static void set_up_volume(Workspace *w) {
    for (Index grid = 1; grid < w->grids; grid++) {
        const Grid *g = w->grid + grid;
        Index n = g->d * g->slice;
        float *inverse = g->a + VOLUME_INVERSE * g->plane, *dip = g->a + VOLUME_DIP * g->plane;
        galerkin_volume(w, g - 1);
        memcpy(inverse, g->a, (size_t)n * sizeof(float));
        memcpy(dip, g->a, (size_t)n * sizeof(float));
        for (int p = 1; p < COUPLINGS; p++) add_coupling(g->a + p * g->plane, reach(g, p), n, inverse, dip);
        complete_points(inverse, dip, n);
    }
    factor_volume(w);
}

/* Guess the unknown points of grid 1 and below, as `guess_coarse` does. */
static void guess_coarse_volume(Workspace *w) {
    Index last = w->grids - 1;
    for (Index grid = 1; grid <= last; grid++) {
        const Grid *g = w->grid + grid;
        if (grid > 1) {
            restrict_volume_float(w, g - 1, g[-1].weight, g->weight);
            for (Index c = 0; c < w->channels; c++)
                restrict_volume_float(w, g - 1, g[-1].x + c * g[-1].plane, g->x + c * g->plane);
        }
        for (Index c = 0; c < w->channels; c++) divide(g->x + c * g->plane, g->weight, g->d * g->slice);
        limit(g->weight, g->d * g->slice);
    }
    fill_coarsest(w);
    for (Index grid = last - 1; grid > 0; grid--) {
        const Grid *g = w->grid + grid;
        subtract_from_one(g);
        for (Index c = 0; c < w->channels; c++)
            for (Index z = 0; z < g->d; z++)
                correct_slice_float(w, g, g[1].x + c * g[1].plane, g->x + c * g->plane, g->weight, z, 1);
    }
}
