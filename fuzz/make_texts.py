"""Writes the corpora that are text or small enough to be made by hand, and the dictionaries."""

import base64
import gzip
import io
import json
import os
import struct
import tarfile


def keep(target, name, content):
    os.makedirs(f"corpus/{target}", exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    with open(f"corpus/{target}/{name}", "wb") as file:
        file.write(data)


def words(target, *entries):
    with open(f"dictionaries/{target}.dict", "w") as file:
        for entry in entries:
            file.write('"' + entry.replace("\\", "\\\\").replace('"', '\\"') + '"\n')


def playlists():
    keep("playlist", "master", '#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n'
         '#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="English",DEFAULT=YES,URI="v/index.m3u8"\n'
         '#EXT-X-STREAM-INF:BANDWIDTH=100000,AVERAGE-BANDWIDTH=90000,CODECS="avc1.64000a",RESOLUTION=64x36,FRAME-RATE=10,AUDIO="a"\n'
         'v/index.m3u8\n#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1000,URI="v/index.m3u8"\n')
    keep("playlist", "media", '#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-PLAYLIST-TYPE:VOD\n'
         '#EXT-X-MAP:URI="v/init.mp4"\n#EXTINF:1.0,\nv/seg.m4s\n#EXT-X-ENDLIST\n')
    keep("playlist", "ranges", '#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n'
         '#EXT-X-MAP:URI="v/init.mp4",BYTERANGE="700@0"\n#EXTINF:0.5,\n#EXT-X-BYTERANGE:500@0\nv/seg.m4s\n'
         '#EXTINF:0.5,\n#EXT-X-BYTERANGE:100\nv/seg.m4s\n#EXT-X-ENDLIST\n')
    keep("playlist", "i-frames", '#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-I-FRAMES-ONLY\n'
         '#EXT-X-MAP:URI="v/init.mp4"\n#EXTINF:1.0,\n#EXT-X-BYTERANGE:900@24\nv/seg.m4s\n#EXT-X-ENDLIST\n')
    keep("playlist", "outside", '#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:1,\n../secret\n#EXTINF:1,\n%2e%2e/secret\n'
         '#EXTINF:1,\n/etc/passwd\n#EXTINF:1,\nfile:///etc/passwd\n#EXTINF:1,\nlink.ts\n#EXT-X-ENDLIST\n')
    keep("playlist", "odd", '\ufeff#EXTM3U\r\n#EXT-X-VERSION:x\n#EXT-X-TARGETDURATION:1e999\n#EXTINF:NaN,\na\n#EXT-X-GAP\n'
         '#EXT-X-KEY:METHOD=AES-128,URI="k"\n#EXT-X-DISCONTINUITY\n#EXTINF:-1,\nb\n#EXT-X-BYTERANGE:1@18446744073709551615\nb\n')
    words("playlist", "#EXTM3U\n", "#EXTINF:1.0,\n", "#EXT-X-BYTERANGE:", '#EXT-X-MAP:URI="v/init.mp4"', "\nv/seg.m4s\n",
          "#EXT-X-STREAM-INF:", "BANDWIDTH=", "AVERAGE-BANDWIDTH=", 'CODECS="', "RESOLUTION=", "FRAME-RATE=", "#EXT-X-MEDIA:",
          "TYPE=SUBTITLES", 'GROUP-ID="', 'URI="', "#EXT-X-ENDLIST", "#EXT-X-I-FRAMES-ONLY", "#EXT-X-I-FRAME-STREAM-INF:",
          "#EXT-X-DISCONTINUITY", "#EXT-X-GAP", "#EXT-X-KEY:METHOD=", "@18446744073709551615", "../secret", "link.ts",
          "VIDEO-RANGE=PQ", "SUBTITLES=", "AUDIO=", "1e308", "nan")


def subtitles():
    keep("webvtt", "segment", "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n\n00:00:00.500 --> 00:00:01.500 line:0\nhello\n")
    keep("webvtt", "odd", "\ufeffWEBVTT\r\n\r\nNOTE from --> a tool\r\nnothing\r\n\r\n1\r\n00:05.000 --> 00:07.500 line:0   align:start\r\n"
         "over the <i>seam</i>\r\ntwo lines\r\n\r\n00:00:01,000 --> 00:00:02,5\r\nearly --> bird\r\n\r\n00:03.000 --> 00:03.000\r\nnever\r\n")
    keep("webvtt", "empty-line", "WEBVTT\n\n00:00.000 --> 00:01.000\na\n\0\nb\n")
    keep("webvtt", "style", "WEBVTT\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:a\n\n00:00.000 --> 00:01.000\nx\n")
    words("webvtt", "WEBVTT", " --> ", "00:00:01.000", "\n\n", "NOTE", "STYLE", "X-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000", "\r",
          "&gt;", "99999999999:00:00.000", "line:0 align:start", "\u2028")


def specs():
    stage = {"name": "a", "run": ["true"]}
    keep("spec", "demo.json", json.dumps({"name": "x", "stage": [stage, {"name": "b", "sleep_ms": 5, "needs": ["a"], "segments": 3}]}))
    keep("spec", "plan.json", json.dumps({"name": "x", "user": "ann", "priority": 10, "max_attempts": 5, "stage": [
        {"name": "plan", "kind": "noop", "phase": "planning"},
        {"name": "do", "kind": "noop", "needs": ["plan"], "reads": ["plan"], "expand": "plan", "hedge": True, "optional": True,
         "requires": ["gpu"], "prefer_gpu": True, "timeout_ms": 1000, "stall_ms": 100, "effect": {"append": "/tmp/x"}}]}))
    with open("../examples/demo.toml") as file:
        keep("spec", "demo.toml", file.read())
    keep("spec", "cycle.toml", 'name = "x"\n[[stage]]\nname = "a"\nkind = "noop"\nneeds = ["b"]\n[[stage]]\nname = "b"\nkind = "noop"\nneeds = ["a"]\n')
    keep("spec", "many.json", json.dumps({"name": "x", "stage": [{"name": "a", "kind": "noop", "segments": 1048577}]}))
    words("spec", '"stage":', '"needs":', '"reads":', '"expand":', '"segments":', '"kind":', '"run":', '"sleep_ms":', '"with":',
          '"requires":', '"phase":', '"effect":', '{"append":"x"}', '"optional":true', "[[stage]]\n", "4294967295", '"a"', "noop")


def settings():
    keep("settings", "empty.json", "{}")
    rung = {"name": "720p", "height": 720, "kbps": 2000, "optional": True}
    keep("settings", "all.json", json.dumps({"codecs": ["h264", "hevc", "av1"], "preset": "slow", "encoder": "software",
         "segment_seconds": 6.0, "gop_seconds": 2.0, "parallel": 4, "surround": True, "thumbnails": True, "mp4": True,
         "dash": True, "measure": True, "rung": [rung, {"name": "180p", "height": 180, "kbps": 300}]}))
    keep("settings", "rungs.json", json.dumps({"rung": [dict(rung, name=f"r{n}", height=90 + 2 * n) for n in range(40)]}))
    keep("settings", "file.toml", 'segment_seconds = 4\n[[rung]]\nname = "360p"\nheight = 360\nkbps = 800\n')
    words("settings", '"rung":', '"name":', '"height":', '"kbps":', '"optional":true', '"segment_seconds":', '"gop_seconds":', "1e308",
          "0.0001", '"parallel":', "4294967295", '"codecs":["av1"]', '"../x"')


def archives():
    def pack(fill, raw=False):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            fill(tar)
        return out.getvalue() if raw else gzip.compress(out.getvalue(), mtime=0)

    def file(tar, name, content=b"media", kind=tarfile.REGTYPE, link=""):
        info = tarfile.TarInfo(name)
        info.size, info.type, info.linkname = len(content), kind, link
        tar.addfile(info, io.BytesIO(content))

    keep("archive", "plain", pack(lambda tar: (file(tar, "720p/a.m4s"), file(tar, "./b.vtt", b"x" * 2000))))
    keep("archive", "traversal", pack(lambda tar: file(tar, "../secret")))
    keep("archive", "absolute", pack(lambda tar: file(tar, "/dev/shm/evil")))
    keep("archive", "symlink", pack(lambda tar: (file(tar, "d", b"", tarfile.SYMTYPE, ".."), file(tar, "d/secret"))))
    keep("archive", "hardlink", pack(lambda tar: file(tar, "d", b"", tarfile.LNKTYPE, "../secret")))
    keep("archive", "long-name", pack(lambda tar: file(tar, "a/" * 100 + "b")))
    keep("archive", "twice", pack(lambda tar: (file(tar, "a"), file(tar, "a"))))
    keep("archive", "file-as-folder", pack(lambda tar: (file(tar, "a"), file(tar, "a/b"))))
    keep("archive", "bomb", pack(lambda tar: file(tar, "zeros", bytes(4 << 20))))
    huge = tarfile.TarInfo("././@LongLink")
    huge.size, huge.type = 24 << 20, tarfile.GNUTYPE_LONGNAME
    keep("archive", "long-name-bomb", gzip.compress(huge.tobuf(tarfile.GNU_FORMAT) + b"a" * (24 << 20), mtime=0)[:200000])
    pax = tarfile.TarInfo("x")
    pax.size, pax.type = 20 << 20, tarfile.XHDTYPE
    keep("archive", "pax-bomb", gzip.compress(pax.tobuf(tarfile.USTAR_FORMAT) + b"a" * (20 << 20), mtime=0)[:200000])


def headers():
    def value(text):
        return base64.b64encode(text.encode()).decode()

    keep("tus_metadata", "usual", f"filename {value('talk.mov')},title {value('A talk')},is_confidential")
    keep("tus_metadata", "odd", f"a  {value('x')} , b {value('é')},,,c !!!,{value('k')} {value('v')},a {value('twice')}")
    keep("tus_metadata", "traversal", f"filename {value('../../etc/passwd')},slug {value('../x')}")
    words("tus_metadata", "filename ", "title ", "slug ", "settings ", ",", "====", value("x" * 30), "\u0000")
    for name, length, text in [("open", 10, "bytes=2-"), ("suffix", 10, "bytes=-3"), ("part", 10, "bytes=2-5"), ("empty", 0, "bytes=0-"),
                               ("huge", 2**64 - 1, "bytes=0-18446744073709551615"), ("many", 10, "bytes=0-1,3-4"),
                               ("upload", 10, "bytes 0-9/10"), ("upload-huge", 10, "bytes 18446744073709551614-18446744073709551614/18446744073709551615")]:
        keep("range", name, struct.pack(">Q", length) + text.encode())
    words("range", "bytes=", "bytes ", "-", "/", "*", "18446744073709551615", "18446744073709551616", "+1", ",")
    for name, text in [("usual", "42-7.1.-123456"), ("edge", "4398046511103-1048575.9223372036854775807.-9223372036854775808"),
                       ("plus", "+42-+7.+1.+1"), ("execution", "42-7.1"), ("job", "42"), ("task", "42-7"),
                       ("uuid", "0198c8e5-7c1c-7f5e-8c5e-3f2a7b1c2d3e"), ("json", '{"task":"42-7","fence":1,"token":-5}'),
                       ("braced", "{0198c8e5-7c1c-7f5e-8c5e-3f2a7b1c2d3e}"), ("urn", "urn:uuid:0198c8e5-7c1c-7f5e-8c5e-3f2a7b1c2d3e")]:
        keep("lease_token", name, text)
    words("lease_token", ".", "-", "+", "9223372036854775807", "-9223372036854775808", "1048576", '"task":', '"fence":', '"token":', "0x")
    for name, text in [("output", "720p/seg-00001.m4s"), ("up", "a/../b"), ("dots", ".../x"), ("title", "Über Café! 日本語"), ("turkish", "İI"),
                       ("long", "a" * 300), ("absolute", "/etc/passwd"), ("windows", "C:\\x"), ("cut", "a" * 79 + " b c")]:
        keep("names", name, text)
    words("names", "../", "/", "\\", "%2e", "\u202e", "\u0130", "\u212a", "-", ".", "~")


def bodies():
    proof = {"task": "42-7", "fence": 1, "token": -5}
    usage = {"wall_ms": 1, "cpu_ms": 1, "peak_memory_bytes": 1, "bytes_in": 0, "bytes_out": 0}
    step = {"kind": "encode", "command": "ffmpeg", "exit_code": 0, "signal": None, "stdout_tail": "", "stderr_tail": "\u001b[31m",
            "duration_ms": 1, "is_success": True, "error": None}
    output = {"path": "720p/a.m4s", "bytes": 5, "sha256": "00" * 32}
    incarnation = "0198c8e5-7c1c-7f5e-8c5e-3f2a7b1c2d3e"
    keep("requests", "claim", json.dumps({"incarnation": incarnation, "max": 4, "wait_ms": 1000}))
    keep("requests", "complete", json.dumps({"proof": proof, "result": {"a": [1]}, "outputs": [output], "usage": usage, "steps": [step]}))
    keep("requests", "direct", json.dumps({"proof": proof, "source": True, "outputs": [dict(output, md5="00" * 16)]}))
    keep("requests", "fail", json.dumps({"proof": proof, "kind": "transient", "message": "x", "usage": usage, "steps": []}))
    keep("requests", "heartbeat", json.dumps({"incarnation": incarnation, "phase": "Polling", "running": 0, "load":
         {"cpu": 0.5, "memory_free_bytes": 1, "disk_free_bytes": 1}, "hello": {"hostname": "h", "version": "0.1.0", "slots": 1,
         "capabilities": ["encode"], "metadata": {}}}))
    keep("requests", "progress", json.dumps({"reports": [{"proof": proof, "progress": 1, "step": "x", "permille": 5}]}))
    keep("requests", "register", json.dumps({"name": "w", "capabilities": ["gpu"], "metadata": {"a": 1}}))
    keep("requests", "release", json.dumps({"proof": proof}))
    words("requests", '"proof":', '"result":', '"outputs":', "1e400", "-0.0", "9223372036854775808", '"\\ud800"', "null", "[[[[[[[[", '"permille":65535')


def overlaps():
    """Runs that describe the same bytes many times over."""

    def boxes(data):
        at = 0
        while at + 8 <= len(data):
            size, kind = struct.unpack_from(">I4s", data, at)
            yield kind, data[at + 8 : at + size]
            at += size

    def box(kind, body):
        return struct.pack(">I4s", 8 + len(body), kind) + body

    def many(moof):
        times, out = 20, b""
        for kind, body in boxes(moof):
            if kind == b"traf":
                parts = list(boxes(body))
                run = next(part for name, part in parts if name == b"trun")
                offset = struct.unpack_from(">i", run, 8)[0] + (times - 1) * (8 + len(run))
                run = run[:8] + struct.pack(">i", offset) + run[12:]
                others = b"".join(box(name, part) for name, part in parts if name != b"trun")
                body = others + times * box(b"trun", run)
            out += box(kind, body)
        return out

    for name in ("aac", "h264"):
        with open(f"corpus/mp4/{name}.mp4", "rb") as file:
            parts = list(boxes(file.read()))
        whole = b"".join(box(kind, many(body) if kind == b"moof" else body) for kind, body in parts)
        for target in ("mp4", "mp4_cut"):
            keep(target, f"overlap-{name}.mp4", whole)


def packets():
    words("probe", '"streams":[', '"codec_type":"video"', '"codec_type":"audio"', '"codec_type":"subtitle"', '"width":', '"height":',
          '"time_base":"1/90000"', '"time_base":"1/0"', '"r_frame_rate":"', '"start_time":"', '"duration":"1e308"', '"rotation":', '"index":',
          '"format_name":"mpegts"', '"tags":{"language":"eng"}', "0,0,0,512,K_\n", "N/A", "9223372036854775807", "-9223372036854775808",
          '"disposition":{"attached_pic":1}', "Encryption info", '"channels":65535', '"sample_rate":"0"')
    for target in ("mp4", "mp4_cut", "segment"):
        words(target, *"moov mvhd trak tkhd mdia mdhd hdlr minf stbl stsd mvex trex moof mfhd traf tfhd tfdt trun mdat avc1 avcC hvc1 hvcC av01 av1C mp4a esds ac-3 dac3 ec-3 dec3 Opus dOps fLaC dfLa colr nclx edts elst udta free sidx styp ftyp".split())


for make in (playlists, subtitles, specs, settings, archives, headers, bodies, overlaps, packets):
    make()
