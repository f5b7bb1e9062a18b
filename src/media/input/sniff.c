// Formats by their first bytes. FFmpeg's own probing is not used: it also believes names, and asks every demuxer it has.
#include "internal.h"

#include <string.h>

typedef struct mark {
    size_t offset;
    const char *bytes;
    size_t size;
    vx_source source;
    const char *demuxer;
} mark;

#define MARK(offset, bytes, source, demuxer)              \
    {                                                     \
        offset, bytes, sizeof(bytes) - 1, source, demuxer \
    }

static const mark marks[] = {
    MARK(0, "\xff\xd8\xff", VX_SOURCE_JPEG, NULL),
    MARK(0, "\x89PNG\r\n\x1a\n", VX_SOURCE_PNG, NULL),
    MARK(0, "GIF8", VX_SOURCE_REFUSED, "a GIF"),
    MARK(0, "II*\0", VX_SOURCE_REFUSED, "a TIFF"),
    MARK(0, "MM\0*", VX_SOURCE_REFUSED, "a TIFF"),
    MARK(0, "BM", VX_SOURCE_REFUSED, "a BMP"),
    MARK(0, "8BPS", VX_SOURCE_REFUSED, "a PSD"),
    MARK(0, "\0\0\0\x0cJXL ", VX_SOURCE_REFUSED, "a JPEG XL picture"),
    MARK(0, "\xff\x0a", VX_SOURCE_REFUSED, "a JPEG XL picture"),
    MARK(0, "\0\0\0\x0cjP  ", VX_SOURCE_REFUSED, "a JPEG 2000 picture"),
    MARK(0, "%PDF", VX_SOURCE_REFUSED, "a PDF"),
    MARK(4, "ftypheic", VX_SOURCE_REFUSED, "a HEIC picture"),
    MARK(4, "ftypheix", VX_SOURCE_REFUSED, "a HEIC picture"),
    MARK(4, "ftypmif1", VX_SOURCE_REFUSED, "a HEIF picture"),
    MARK(4, "ftypmsf1", VX_SOURCE_REFUSED, "a HEIF picture"),
    MARK(4, "ftypavif", VX_SOURCE_REFUSED, "an AVIF picture"),
    MARK(4, "ftypavis", VX_SOURCE_REFUSED, "an AVIF picture"),
    MARK(4, "ftyp", VX_SOURCE_CLIP, "mov"),
    MARK(4, "moov", VX_SOURCE_CLIP, "mov"),
    MARK(4, "mdat", VX_SOURCE_CLIP, "mov"),
    MARK(4, "wide", VX_SOURCE_CLIP, "mov"),
    MARK(4, "free", VX_SOURCE_CLIP, "mov"),
    MARK(4, "skip", VX_SOURCE_CLIP, "mov"),
    MARK(0, "\x1a\x45\xdf\xa3", VX_SOURCE_CLIP, "matroska"),
    MARK(0, "fLaC", VX_SOURCE_CLIP, "flac"),
    MARK(0, "OggS", VX_SOURCE_CLIP, "ogg"),
    MARK(0, "#EXTM3U", VX_SOURCE_REFUSED, "a playlist"),
    MARK(0, "FLV\1", VX_SOURCE_REFUSED, "an FLV video"),
    MARK(0, "\0\0\1\xba", VX_SOURCE_REFUSED, "an MPEG program stream"),
};

static bool holds(const uint8_t *bytes, size_t size, size_t offset, const char *what, size_t length)
{
    return size >= offset + length && memcmp(bytes + offset, what, length) == 0;
}

static vx_source sniff_riff(const char **demuxer, const uint8_t *bytes, size_t size)
{
    bool wide = holds(bytes, size, 0, "RF64", 4);
    if (!wide && holds(bytes, size, 8, "WEBP", 4)) return VX_SOURCE_WEBP;
    *demuxer = holds(bytes, size, 8, "WAVE", 4) ? "wav" : !wide && holds(bytes, size, 8, "AVI ", 4) ? "avi" : NULL;
    return *demuxer ? VX_SOURCE_CLIP : VX_SOURCE_UNKNOWN;
}

// A frame header of MPEG audio, layer III: 11 bits of synchronisation, layer code 01, no reserved bit rate or sampling rate.
static bool is_mp3_frame(const uint8_t *b, size_t size)
{
    return size >= 4 && b[0] == 0xff && (b[1] & 0xe6) == 0xe2 && (b[2] & 0xf0) != 0xf0 && (b[2] & 0x0c) != 0x0c;
}

// An ID3v2 tag says its size in four bytes of seven bits. It stands before MP3, and sometimes before FLAC.
static vx_source sniff_tagged(const char **demuxer, const uint8_t *b, size_t size)
{
    *demuxer = "mp3";
    if (size < 10) return VX_SOURCE_UNKNOWN;
    size_t after = 10 + ((size_t)(b[6] & 127) << 21 | (size_t)(b[7] & 127) << 14 | (size_t)(b[8] & 127) << 7 | (b[9] & 127));
    if (holds(b, size, after, "fLaC", 4)) *demuxer = "flac";
    return VX_SOURCE_CLIP;
}

vx_source vx_sniff(const char **demuxer, const uint8_t *bytes, size_t size)
{
    *demuxer = NULL;
    if (holds(bytes, size, 0, "RIFF", 4) || holds(bytes, size, 0, "RF64", 4)) return sniff_riff(demuxer, bytes, size);
    if (holds(bytes, size, 0, "ID3", 3)) return sniff_tagged(demuxer, bytes, size);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (holds(bytes, size, marks[i].offset, marks[i].bytes, marks[i].size)) {
            *demuxer = marks[i].demuxer;
            return marks[i].source;
        }
    if (!is_mp3_frame(bytes, size)) return VX_SOURCE_UNKNOWN;
    *demuxer = "mp3";
    return VX_SOURCE_CLIP;
}

vx_status vx_source_refused(const char *path, const char *name)
{
    return vx_fail_remedy(VX_ERR_INPUT_FORMAT,
                          "convert it: pictures to PNG, JPEG or WebP; videos to MP4, Matroska or WebM; sound "
                          "to WAV, FLAC or MP3",
                          "%s: is %s, which is not read", path, name);
}

vx_status vx_source_unknown(const char *path, size_t size)
{
    if (!size) return vx_fail(VX_ERR_INPUT_FORMAT, "%s: is empty", path);
    return vx_fail_remedy(VX_ERR_INPUT_FORMAT,
                          "pictures may be PNG, JPEG or WebP; videos MP4, MOV, Matroska, WebM or AVI; sound "
                          "WAV, MP3, FLAC or Ogg",
                          "%s: holds no picture, video or sound of a kind that is read", path);
}
