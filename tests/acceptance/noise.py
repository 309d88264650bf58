"""The client's part of the handshake on TCP, `Noise_NNpsk0_25519_ChaChaPoly_SHA256`, written from the specification alone.

Slow, and not safe against who measures time: for tests.
"""

import hashlib
import hmac
import os
import struct

PROTOCOL = b"Noise_NNpsk0_25519_ChaChaPoly_SHA256"
# RFC 7748
PRIME = 2**255 - 19
# RFC 8439
POLY_PRIME = 2**130 - 5
POLY_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF


def secret_of(key):
    """What the handshake of those who know `key` begins with."""
    return hmac.new(key, b"isonomia key 1", hashlib.sha256).digest()


def x25519(scalar, point):
    number = int.from_bytes(scalar, "little") & ~7 & (1 << 255) - 1 | 1 << 254
    x1 = int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in reversed(range(255)):
        if number >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        x3, z3 = (da + cb) ** 2 % PRIME, x1 * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, (aa - bb) * (aa + 121665 * (aa - bb)) % PRIME
        if number >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def chacha_block(key, counter, nonce):
    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    work = list(state)

    def quarter(a, b, c, d):
        for x, y, z, shift in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]:
            work[x] = work[x] + work[y] & 0xFFFFFFFF
            mixed = work[z] ^ work[x]
            work[z] = (mixed << shift | mixed >> 32 - shift) & 0xFFFFFFFF

    for _ in range(10):
        for n in range(4):
            quarter(n, n + 4, n + 8, n + 12)
        for n in range(4):
            quarter(n, 4 + (n + 1) % 4, 8 + (n + 2) % 4, 12 + (n + 3) % 4)
    return struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(work, state)))


def poly1305(key, message):
    r, s = int.from_bytes(key[:16], "little") & POLY_CLAMP, int.from_bytes(key[16:], "little")
    total = 0
    for at in range(0, len(message), 16):
        total = (total + int.from_bytes(message[at : at + 16] + b"\1", "little")) * r % POLY_PRIME
    return (total + s & (1 << 128) - 1).to_bytes(16, "little")


def seal(key, nonce, associated, text):
    stream = b"".join(chacha_block(key, 1 + n, nonce) for n in range((len(text) + 63) // 64))
    sealed = bytes(a ^ b for a, b in zip(text, stream))
    padded = b"".join(part + bytes(-len(part) % 16) for part in [associated, sealed])
    lengths = struct.pack("<QQ", len(associated), len(sealed))
    return sealed + poly1305(chacha_block(key, 0, nonce)[:32], padded + lengths)


def expand(chaining_key, material, count):
    secret = hmac.new(chaining_key, material, hashlib.sha256).digest()
    parts = [b""]
    for n in range(count):
        parts.append(hmac.new(secret, parts[-1] + bytes([n + 1]), hashlib.sha256).digest())
    return parts[1:]


def first_message(secret, prologue, payload):
    """The message that a handshake about `prologue` begins with, between those who know `secret`."""

    def mix(digest, data):
        return hashlib.sha256(digest + data).digest()

    chaining_key = digest = hashlib.sha256(PROTOCOL).digest()
    digest = mix(digest, prologue)
    chaining_key, mixed, _ = expand(chaining_key, secret, 3)
    digest = mix(digest, mixed)
    public = x25519(os.urandom(32), (9).to_bytes(32, "little"))
    digest = mix(digest, public)
    _, key = expand(chaining_key, public, 2)
    return public + seal(key, bytes(12), digest, payload)
