from skylarkmq.protocol.signature import ReadSigned

class Signed:
    access_key: str
    signature: str
    content: bytes

class Reader:
    signed_parts: ReadSigned
    def __init__(self, general: ReadSigned) -> None: ...
