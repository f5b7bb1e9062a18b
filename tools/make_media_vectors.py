#!/usr/bin/env python3
"""Writes tests/data/media/input/: small pictures, videos and sounds, and expected.txt, what the reference makes of them. Made with Pillow 13.0.0
(libjpeg-turbo 3.2, libwebp 1.6), the ffmpeg program 5.1.9 and PyAV 18.1 (FFmpeg 8).

expected.txt  picture FILE width height FNV-1a-64 of the RGB bytes
              frames FILE slots width height FNV-1a-64 of all slots' RGB bytes
              sound FILE channels samples rate FNV-1a-64 of the planar f32 bytes
              near FILE channels samples rate count, then count "channel index value": lossy decoders differ in the last bits from machine to machine
              refused FILE part of the message"""
import pathlib
import shutil
import struct
import subprocess
import zlib

import av
import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "media" / "input"
lines = []


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def image(width, height, channels=3, seed=0):
    """Slopes with an edge and some noise."""
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    noise = np.random.default_rng(seed).integers(0, 24, (height, width, channels))
    return np.clip(7 * x * (c + 1) + 5 * y + 60 * (c == 1) + 90 * ((x + y) // 9 % 2) * (c != 2) + noise, 0, 255).astype(np.uint8)


# ---- pictures ----

def expect_picture(name, pixels=None):
    if pixels is None:
        pixels = np.asarray(ImageOps.exif_transpose(Image.open(HERE / name)).convert("RGB"))
    lines.append(f"picture {name} {pixels.shape[1]} {pixels.shape[0]} {fnv(pixels.tobytes()):016x}")


def save(name, picture, pixels=None, **options):
    picture.save(HERE / name, **options)
    expect_picture(name, pixels)


def orientation(value, endian="<"):
    return b"Exif\0\0" + (b"II*\0" if endian == "<" else b"MM\0*") + struct.pack(endian + "IHHHIHHI", 8, 1, 0x112, 3, 1, value, 0, 0)


def xmp(value, element=False):
    inside = f"<tiff:Orientation>{value}</tiff:Orientation>" if element else ""
    attribute = "" if element else f' tiff:Orientation="{value}"'
    return f'<x:xmpmeta><rdf:Description{attribute}>{inside}</rdf:Description></x:xmpmeta>'.encode()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(name, width, height, depth, kind, rows, extra=b"", pixels=None):
    """A PNG of given depth and colour type from packed rows."""
    body = b"".join(b"\0" + row for row in rows)
    (HERE / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)) + extra +
                              chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))
    expect_picture(name, pixels)


def interlaced(name, pixels):
    """Adam7, RGB."""
    body = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            body += b"".join(b"\0" + row.tobytes() for row in part)
    height, width = pixels.shape[:2]
    (HERE / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)) +
                              chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b""))
    expect_picture(name)


def packed(values, depth):
    rows = []
    for row in values:
        bits = "".join(format(v, f"0{depth}b") for v in row)
        bits += "0" * (-len(bits) % 8)
        rows.append(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    return rows


def jpegs():
    rgb = Image.fromarray(image(37, 29))
    for value in range(1, 9):
        save(f"exif{value}.jpg", Image.fromarray(image(12, 8)), quality=90, exif=orientation(value, "<>"[value % 2]))
    save("exif0.jpg", Image.fromarray(image(12, 8)), quality=90, exif=orientation(0) )
    save("exif-broken.jpg", Image.fromarray(image(12, 8)), quality=90, exif=b"Exif\0\0MM\0*\xff\xff\xff\xf0\x12")
    save("xmp6.jpg", Image.fromarray(image(12, 8)), quality=90, xmp=xmp(6))
    save("xmp5.jpg", Image.fromarray(image(12, 8)), quality=90, xmp=xmp(5, True))
    save("exif-before-xmp.jpg", Image.fromarray(image(12, 8)), quality=90, exif=orientation(3), xmp=xmp(6))
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        save(f"s{name}.jpg", rgb, quality=80, subsampling=sampling)
    save("progressive.jpg", rgb, quality=75, progressive=True)
    save("restart.jpg", rgb, quality=75, restart_marker_blocks=1)
    save("grey.jpg", rgb.convert("L"), quality=75)
    save("rgb.jpg", rgb, quality=80, keep_rgb=True)
    save("cmyk-adobe.jpg", Image.fromarray(image(20, 13, 4), "CMYK"), quality=85)
    data = bytearray((HERE / "cmyk-adobe.jpg").read_bytes())
    at = data.find(b"\xff\xee")
    del data[at : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")]
    (HERE / "cmyk-plain.jpg").write_bytes(data)
    expect_picture("cmyk-plain.jpg")
    (HERE / "many.mpo").write_bytes(b"")
    rgb.save(HERE / "many.mpo", save_all=True, append_images=[rgb.rotate(180)], quality=70)
    expect_picture("many.mpo")
    Image.fromarray(np.random.default_rng(5).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(HERE / "cut.jpg", quality=10)
    whole = (HERE / "cut.jpg").read_bytes()
    at = whole.find(b"\xff\xda") + 400
    (HERE / "cut.jpg").write_bytes(whole[:-400])
    (HERE / "damaged.jpg").write_bytes(whole[:at] + b"\xff\xd0" + whole[at + 2 :])
    lines.append("refused cut.jpg of 64")
    lines.append("refused damaged.jpg of 64")


def pngs():
    rgb = image(19, 11)
    save("rgb.png", Image.fromarray(rgb))
    clear = image(19, 11, 4)
    clear[..., 3] = np.arange(19)[None, :] * 14
    clear[:3, :, :3] = 255
    clear[:3, :, 3] = 0
    save("rgba.png", Image.fromarray(clear, "RGBA"))
    save("la.png", Image.fromarray(clear[..., :2].copy(), "LA"))
    for depth in (1, 2, 4, 8):
        levels = (rgb[..., 0] >> (8 - depth)).astype(int)
        rows = packed(levels, depth)
        png(f"grey{depth}.png", 19, 11, depth, 0, rows, chunk(b"tRNS", b"\0\1"), np.repeat((levels * 255 // (2**depth - 1)).astype(np.uint8)[..., None], 3, 2))
        palette = bytes((np.random.default_rng(depth).integers(0, 256, 3 * 2**depth)).astype(np.uint8))
        png(f"palette{depth}.png", 19, 11, depth, 3, rows, chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(range(2**depth))[: 2**depth]))
    wide = np.random.default_rng(1).integers(0, 65536, (11, 19, 4)).astype(">u2")
    high = (wide >> 8).astype(np.uint8)
    png("rgb16.png", 19, 11, 16, 2, [r[:, :3].tobytes() for r in wide])
    png("rgba16.png", 19, 11, 16, 6, [r.tobytes() for r in wide])
    png("la16.png", 19, 11, 16, 4, [r[:, :2].tobytes() for r in wide])
    # not what Pillow makes of it: scaled, and not cut at 255
    scaled = ((wide[..., 0].astype(np.int64) * 255 + 32767) // 65535).astype(np.uint8)
    png("grey16.png", 19, 11, 16, 0, [r[:, 0].tobytes() for r in wide], pixels=np.repeat(scaled[..., None], 3, 2))
    png("gamma.png", 19, 11, 8, 2, [r.tobytes() for r in rgb], chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[0, 0]))))
    interlaced("adam7.png", rgb)
    interlaced("adam7-small.png", rgb[:3, :2].copy())
    save("exif6.png", Image.fromarray(rgb), exif=orientation(6))
    png("exif8-late.png", 19, 11, 8, 2, [r.tobytes() for r in rgb])
    data = (HERE / "exif8-late.png").read_bytes()
    lines.pop()
    (HERE / "exif8-late.png").write_bytes(data[:-12] + chunk(b"eXIf", orientation(8)[6:]) + data[-12:])
    expect_picture("exif8-late.png")
    png("xmp7.png", 19, 11, 8, 2, [r.tobytes() for r in rgb], chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(7)))
    Image.fromarray(rgb).save(HERE / "animated.png", save_all=True, append_images=[Image.fromarray(255 - rgb)], duration=100)
    expect_picture("animated.png")
    whole = (HERE / "rgb.png").read_bytes()
    (HERE / "cut.png").write_bytes(whole[: len(whole) // 2])
    lines.append("refused cut.png damaged")
    at = whole.find(b"IDAT") + 60
    (HERE / "damaged.png").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    lines.append("refused damaged.png damaged")
    huge = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0" * 2000)) + chunk(b"IEND", b"")
    (HERE / "bomb.png").write_bytes(huge)
    lines.append("refused bomb.png 30000x30000")
    (HERE / "text.png").write_bytes(b"This is a note and no picture.\n")
    lines.append("refused text.png no picture, video or sound")
    (HERE / "empty.png").write_bytes(b"")
    lines.append("refused empty.png is empty")
    (HERE / "rgb.png.mp4").write_bytes(whole)  # content counts, not the name
    expect_picture("rgb.png.mp4")


def webps():
    rgb = image(27, 22)
    clear = image(27, 22, 4)
    clear[..., 3] = np.arange(27)[None, :] * 9
    save("lossy.webp", Image.fromarray(rgb), quality=70)
    save("lossless.webp", Image.fromarray(rgb), lossless=True)
    save("lossy-alpha.webp", Image.fromarray(clear, "RGBA"), quality=70)
    save("lossless-alpha.webp", Image.fromarray(clear, "RGBA"), lossless=True, exact=True)
    save("exif5.webp", Image.fromarray(rgb), quality=70, exif=orientation(5))
    save("xmp8.webp", Image.fromarray(rgb), quality=70, xmp=xmp(8))
    save("animated.webp", Image.fromarray(clear, "RGBA"), save_all=True, append_images=[Image.fromarray(255 - clear, "RGBA")], duration=100, quality=60)
    inner = np.zeros((22, 27, 4), np.uint8)
    inner[6:16, 8:20] = clear[6:16, 8:20] | (0, 0, 0, 255)
    save("animated-inner.webp", Image.fromarray(inner, "RGBA"), save_all=True, append_images=[Image.fromarray(clear, "RGBA")], duration=100, lossless=True)
    whole = (HERE / "lossy.webp").read_bytes()
    (HERE / "cut.webp").write_bytes(whole[: len(whole) // 2])
    lines.append("refused cut.webp damaged")


# ---- clips ----

def ffmpeg(*arguments, data=None):
    return subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], input=data, capture_output=True, check=True).stdout


def movie(width, height, count):
    return b"".join(np.roll(image(width, height, seed=i), 3 * i, axis=1).tobytes() for i in range(count))


def clip(name, width, height, count, rate, *options, filters=None, sound=None):
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", rate, "-i", "-"]
    extra = ["-f", "lavfi", "-i", f"sine=440:sample_rate=32000:duration={sound}"] if sound else []
    ffmpeg(*raw, *extra, *(["-vf", filters] if filters else []), *options, "-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", HERE / name, data=movie(width, height, count))


def by_program(name):
    return np.frombuffer(ffmpeg("-i", HERE / name, "-map", "0:v:0", "-vf", "fps=24,scale=flags=bilinear", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"), np.uint8)


def by_reference(name):
    """diffusers' _decode_video_file, its slots, and FFmpeg's sense of rotation."""
    with av.open(str(HERE / name)) as container:
        stream = container.streams.video[0]
        frames, rotation = [], 0
        for frame in container.decode(stream):
            rotation = frame.rotation
            frames.append(frame.to_ndarray(format="rgb24"))
        rate = float(stream.average_rate or stream.guessed_rate)
    frames = np.ascontiguousarray(np.rot90(np.stack(frames), k=round(rotation / 90) % 4, axes=(1, 2)))
    slots = np.floor(np.arange(len(frames)) * (24 / rate) + 0.5).astype(int)
    return np.repeat(frames, np.diff(slots, append=int(np.floor(len(frames) * (24 / rate) + 0.5))), axis=0)


def expect_frames(name, variable=False):
    program, reference = by_program(name), by_reference(name)
    height, width = reference.shape[1:3]
    program = program.reshape(-1, height, width, 3)
    same = program.shape == reference.shape and np.array_equal(program, reference)
    if not same:
        print(name, "ffmpeg", program.shape, "diffusers", reference.shape, "differ" + ("" if program.shape != reference.shape else f" by {np.abs(program.astype(int) - reference).max()}"))
    result = program if variable else reference
    lines.append(f"frames {name} {len(result)} {width} {height} {fnv(result.tobytes()):016x}")


def clips():
    lossless = ("-c:v", "ffv1", "-level", "3", "-slicecrc", "1")
    x264 = ("-c:v", "libx264", "-preset", "fast", "-crf", "23", "-x264-params", "bframes=2:keyint=50", "-pix_fmt", "yuv420p")
    for name, rate, count in (("r24", "24", 5), ("r30", "30", 8), ("r25", "25", 6), ("r23", "24000/1001", 5), ("r12", "12", 3), ("r50", "50", 9), ("r60", "60", 10)):
        clip(f"{name}.mp4", 48, 32, count, rate, *x264)
        expect_frames(f"{name}.mp4")
    clip("one.mp4", 48, 32, 1, "24", *x264)
    expect_frames("one.mp4")
    clip("r48.mkv", 48, 32, 8, "48", *lossless)  # milliseconds: the program sees other ties than the rate has
    expect_frames("r48.mkv")
    clip("r30.mkv", 48, 32, 7, "30", *lossless)
    expect_frames("r30.mkv")
    clip("variable.mkv", 48, 32, 7, "24", *lossless, "-fps_mode", "vfr", filters="settb=1/1000,setpts='if(lt(N,2),N*40,if(lt(N,4),130+7*N,N*70))'")
    expect_frames("variable.mkv", True)
    for angle in (90, 180, 270):
        clip("turned.mp4", 48, 32, 2, "24", *x264)
        ffmpeg("-i", HERE / "turned.mp4", "-c", "copy", "-metadata:s:v:0", f"rotate={angle}", "-fflags", "+bitexact", HERE / f"turned{angle}.mp4")
        expect_frames(f"turned{angle}.mp4")
    (HERE / "turned.mp4").unlink()
    # Odd heights of 4:2:0 and 10 bits go another way through swscale, which changed between FFmpeg 5.1 and 8.
    for name, filters, options in (("untagged", None, ()), ("bt709", "scale=out_color_matrix=bt709", ("-colorspace", "bt709")), ("full", "scale=out_range=full", ("-color_range", "pc")),
                                   ("bt2020", "scale=out_color_matrix=bt2020", ("-colorspace", "bt2020nc"))):
        clip(f"{name}.mkv", 37, 24, 1, "24", *lossless, "-pix_fmt", "yuv444p" if name == "full" else "yuv420p", *options, filters=filters)
        expect_frames(f"{name}.mkv")
    clip("hevc.mp4", 64, 48, 3, "24", "-c:v", "libx265", "-preset", "fast", "-x265-params", "log-level=error:info=0", "-tag:v", "hvc1", "-pix_fmt", "yuv420p")
    clip("vp8.webm", 48, 32, 3, "24", "-c:v", "libvpx", "-b:v", "200k")
    clip("vp9.webm", 48, 32, 3, "24", "-c:v", "libvpx-vp9", "-b:v", "200k", "-pix_fmt", "yuv420p")
    clip("av1.mkv", 64, 64, 2, "24", "-c:v", "libaom-av1", "-cpu-used", "8", "-b:v", "100k", "-pix_fmt", "yuv420p")
    clip("mpeg4.avi", 48, 32, 3, "24", "-c:v", "mpeg4", "-q:v", "4")
    clip("mjpeg.mov", 48, 32, 2, "24", "-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj420p")
    clip("prores.mov", 48, 32, 1, "24", "-c:v", "prores_ks", "-profile:v", "3")
    for name in ("hevc.mp4", "vp8.webm", "vp9.webm", "av1.mkv", "mpeg4.avi", "mjpeg.mov", "prores.mov"):
        expect_frames(name)
    clip("talk.mp4", 48, 32, 6, "24", *x264, "-c:a", "aac", "-b:a", "64k", "-ac", "2", sound=0.25)
    expect_frames("talk.mp4")
    expect_sound("talk.mp4", True)
    whole = (HERE / "r30.mkv").read_bytes()
    (HERE / "cut.mkv").write_bytes(whole[: len(whole) * 2 // 3])
    lines.append("refused cut.mkv cut.mkv")
    at = len(whole) // 2
    (HERE / "damaged.mkv").write_bytes(whole[:at] + bytes(b ^ 0x5A for b in whole[at : at + 40]) + whole[at + 40 :])
    lines.append("refused damaged.mkv frame 3")
    whole = (HERE / "r30.mp4").read_bytes()
    (HERE / "cut.mp4").write_bytes(whole[: len(whole) * 2 // 3])
    lines.append("refused cut.mp4 cut.mp4")
    ffmpeg("-i", HERE / "talk.mp4", "-c", "copy", "-movflags", "+faststart", "-fflags", "+bitexact", HERE / "cut-behind.mp4")
    whole = (HERE / "cut-behind.mp4").read_bytes()
    (HERE / "cut-behind.mp4").write_bytes(whole[:-1500])
    lines.append("refused cut-behind.mp4 cut-behind.mp4: is")
    clip("theora.ogv", 48, 32, 2, "24", "-c:v", "libtheora")
    lines.append("refused theora.ogv theora")
    Image.fromarray(image(9, 9)).save(HERE / "still.gif")
    lines.append("refused still.gif a GIF")


# ---- sounds ----

def expect_sound(name, lossy=False):
    with av.open(str(HERE / name)) as container:
        stream = container.streams.audio[0]
        rate = int(stream.codec_context.sample_rate)
        resampler = av.audio.resampler.AudioResampler(format="fltp", layout=stream.layout, rate=rate)
        parts = [r.to_ndarray() for frame in container.decode(stream) for r in resampler.resample(frame)]
        parts += [r.to_ndarray() for r in resampler.resample(None)]
    samples = np.concatenate(parts, axis=-1).astype("<f4")
    channels, count = samples.shape
    if not lossy:
        lines.append(f"sound {name} {channels} {count} {rate} {fnv(samples.tobytes()):016x}")
        return
    picks = [(c, i) for c in range(channels) for i in sorted({0, 1, 500, 1023, 1024, 1025, 3000, count // 2, count - 100, count - 1}) if 0 <= i < count]
    lines.append(f"near {name} {channels} {count} {rate} {len(picks)} " + " ".join(f"{c} {i} {samples[c, i]:.7g}" for c, i in picks))


def sounds():
    def tone(name, seconds, rate, channels, *options):
        wave = "|".join(f"0.6*sin({400 + 150 * c}*t)+0.2*sin(9000*t+{c})" for c in range(channels))
        layout = {1: "mono", 2: "stereo", 3: "2.1"}[channels]
        ffmpeg("-f", "lavfi", "-i", f"aevalsrc='{wave}':s={rate}:d={seconds}:c={layout}", *options, "-fflags", "+bitexact", "-flags:a", "+bitexact", HERE / name)

    for name, codec, rate, channels in (("u8", "pcm_u8", 8000, 1), ("s16", "pcm_s16le", 44100, 2), ("s24", "pcm_s24le", 48000, 1), ("s32", "pcm_s32le", 16000, 1),
                                        ("f32", "pcm_f32le", 22050, 2), ("f64", "pcm_f64le", 11025, 1)):
        tone(f"{name}.wav", 0.05, rate, channels, "-c:a", codec)
        expect_sound(f"{name}.wav")
    tone("three.wav", 0.02, 8000, 3)
    lines.append("refused three.wav 3 channels")
    tone("long.wav", 15.3, 1000, 1, "-c:a", "pcm_u8")
    lines.append("refused long.wav 15 seconds")
    tone("just.wav", 15.1, 1000, 1, "-c:a", "pcm_u8")
    expect_sound("just.wav")
    tone("flac.flac", 0.04, 22050, 2)
    expect_sound("flac.flac")
    whole = (HERE / "flac.flac").read_bytes()
    (HERE / "damaged.flac").write_bytes(whole[:-400] + bytes(b ^ 0x5A for b in whole[-400:-380]) + whole[-380:])
    lines.append("refused damaged.flac damaged")
    tone("aac.m4a", 0.3, 32000, 2, "-c:a", "aac")
    tone("mp3.mp3", 0.3, 44100, 2, "-c:a", "libmp3lame")
    tone("vorbis.ogg", 0.3, 44100, 2, "-c:a", "libvorbis")
    tone("opus.ogg", 0.3, 48000, 2, "-c:a", "libopus")
    for name in ("aac.m4a", "mp3.mp3", "vorbis.ogg", "opus.ogg"):
        expect_sound(name, True)


shutil.rmtree(HERE, ignore_errors=True)
HERE.mkdir(parents=True)
jpegs()
pngs()
webps()
clips()
sounds()
(HERE / "expected.txt").write_text("\n".join(lines) + "\n")
