/* Gaussian noise for `multigrid.c`: the numbers that torch draws on the CPU, up to rounding, several times as fast.

   As in `Tensor.normal_`, the Mersenne Twister gives one number of 24 bits per value, and the Box-Muller transform turns
   the two halves of each group of 16 into normal numbers. A last group that is not full ends with the last value, from
   16 further numbers. The seed has 32 bits. */

#define DRAWS 624 /* of one state of the generator: 39 groups */
#define GROUP 16
#define HALF (GROUP / 2)

static void seed_state(uint32_t *state, uint32_t seed) {
    state[0] = seed;
    for (uint32_t i = 1; i < DRAWS; i++) state[i] = 1812433253u * (state[i - 1] ^ state[i - 1] >> 30) + i;
}

#define TWIST(a, b) (((((a) & 0x80000000u) | ((b) & 0x7fffffffu)) >> 1) ^ ((0u - ((b) & 1u)) & 0x9908b0dfu))

/* Compute the next state; the two halves of the loop each read what is at least 227 numbers away. */
KERNEL void next_state(uint32_t *state) {
    for (int i = 0; i < DRAWS - 397; i++) state[i] = state[i + 397] ^ TWIST(state[i], state[i + 1]);
    for (int i = DRAWS - 397; i < DRAWS - 1; i++) state[i] = state[i + 397 - DRAWS] ^ TWIST(state[i], state[i + 1]);
    state[DRAWS - 1] = state[396] ^ TWIST(state[DRAWS - 1], state[0]);
}

/* Temper draws to numbers in [0, 1). */
KERNEL void uniform(const uint32_t *draws, Index n, float *restrict out) {
    for (Index j = 0; j < n; j++) {
        uint32_t y = draws[j];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        y ^= y >> 18;
        out[j] = (float)(int32_t)(y & 0xffffffu) * 0x1p-24f;
    }
}

/* Compute the natural logarithm of a positive number to about one unit in the last place (Cephes). */
static inline float logarithm(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t power = (bits - 0x3f3504f3) >> 23; /* leaves a mantissa from √½ to √2 */
    float e = (float)power, z = float_of(bits - (int32_t)((uint32_t)power << 23)) - 1, square = z * z;
    float p = 7.0376836292e-2f;
    p = p * z - 1.1514610310e-1f;
    p = p * z + 1.1676998740e-1f;
    p = p * z - 1.2420140846e-1f;
    p = p * z + 1.4249322787e-1f;
    p = p * z - 1.6668057665e-1f;
    p = p * z + 2.0000714765e-1f;
    p = p * z - 2.4999993993e-1f;
    p = p * z + 3.3333331174e-1f;
    return z + (p * z * square - 2.12194440e-4f * e - 0.5f * square) + 0.693359375f * e;
}

/* Turn n pairs of uniform numbers into pairs of normal ones, in place. */
KERNEL void box_muller(float *restrict first, float *restrict second, Index n) {
    for (Index j = 0; j < n; j++) {
        float radius = sqrtf(-2 * logarithm(1 - first[j]));
        int32_t quarter = (int32_t)(4 * second[j] + 0.5f);
        float angle = 6.28318530718f * (second[j] - 0.25f * (float)quarter), square = angle * angle;
        float sine = -1.9515295891e-4f, cosine = 2.443315711809948e-5f;
        sine = (sine * square + 8.3321608736e-3f) * square - 1.6666654611e-1f;
        sine = sine * square * angle + angle;
        cosine = (cosine * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f;
        cosine = cosine * square * square - 0.5f * square + 1;
        float across = quarter & 1 ? sine : cosine, up = quarter & 1 ? cosine : sine;
        first[j] = radius * ((quarter + 1) & 2 ? -across : across);
        second[j] = radius * (quarter & 2 ? -up : up);
    }
}

/* Turn n draws, a number of whole groups, into normal numbers. */
static void normal(const uint32_t *draws, Index n, float *out) {
    float first[DRAWS / 2], second[DRAWS / 2];
    uniform(draws, n, out);
    for (Index k = 0; k < n / GROUP; k++) {
        memcpy(first + k * HALF, out + k * GROUP, HALF * sizeof(float));
        memcpy(second + k * HALF, out + k * GROUP + HALF, HALF * sizeof(float));
    }
    box_muller(first, second, n / 2);
    for (Index k = 0; k < n / GROUP; k++) {
        memcpy(out + k * GROUP, first + k * HALF, HALF * sizeof(float));
        memcpy(out + k * GROUP + HALF, second + k * HALF, HALF * sizeof(float));
    }
}

KERNEL void add_where_removed(float *restrict values, const uint8_t *keep, const float *noise, Index n, float factor) {
    for (Index j = 0; j < n; j++) values[j] += keep[j] ? 0 : factor * noise[j];
}

/* Add noise to values first to last of an image, whose channels share `keep`. */
static void add_noise(float *values, const uint8_t *keep, Index pixels, Index first, Index last, const float *noise,
                      float factor) {
    while (first < last) {
        Index pixel = first % pixels, n = least(last - first, pixels - pixel);
        add_where_removed(values + first, keep + pixel, noise, n, factor);
        first += n, noise += n;
    }
}

/* Return whether values first to last of an image are all kept, which is asked before computing their noise. */
static int all_kept(const uint8_t *keep, Index pixels, Index first, Index last) {
    Index pixel = first % pixels;
    return pixel + last - first <= pixels && !memchr(keep + pixel, 0, (size_t)(last - first));
}

static void add_noise_to_image(float *values, const uint8_t *keep, Index size, Index pixels, uint32_t seed,
                               float factor) {
    uint32_t state[DRAWS], rest[GROUP];
    float noise[DRAWS];
    Index whole = size % GROUP ? size - GROUP : size; /* values before the last group, if that is not full */
    seed_state(state, seed);
    for (Index first = 0; first < size; first += DRAWS) {
        Index last = least(first + DRAWS, whole);
        next_state(state);
        if (first >= last || all_kept(keep, pixels, first, last)) continue;
        normal(state, rounded(last - first, GROUP), noise);
        add_noise(values, keep, pixels, first, last, noise, factor);
    }
    if (whole == size) return;
    for (Index j = 0; j < GROUP; j++) {
        if ((size + j) % DRAWS == 0) next_state(state);
        rest[j] = state[(size + j) % DRAWS];
    }
    normal(rest, GROUP, noise);
    add_noise(values, keep, pixels, whole, size, noise, factor);
}

/* Write channels (C, P) as pixels (P, C). */
KERNEL void interleave(const float *values, Index channels, Index pixels, float *restrict out) {
    const float *green = values + pixels, *blue = green + pixels;
    if (channels == 3)
        for (Index k = 0; k < pixels; k++)
            out[3 * k] = values[k], out[3 * k + 1] = green[k], out[3 * k + 2] = blue[k];
    else
        for (Index k = 0; k < pixels; k++)
            for (Index c = 0; c < channels; c++) out[k * channels + c] = values[c * pixels + k];
}

/* Add noise to the removed values of images first to last of (N, C, P), at least 16 values each; with `out`, also write
   them there as (N, P, C). */
EXPORT void twinlens_noise(float *images, const uint8_t *keep, const uint64_t *seeds, int64_t first, int64_t last,
                           int64_t channels, int64_t pixels, double factor, float *out) {
    Index size = channels * pixels;
    for (Index n = first; n < last; n++) {
        if (factor != 0)
            add_noise_to_image(images + n * size, keep + n * pixels, size, pixels, (uint32_t)seeds[n], (float)factor);
        if (out) interleave(images + n * size, channels, pixels, out + n * size);
    }
}
