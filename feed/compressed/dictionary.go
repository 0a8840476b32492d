package compressed

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"

	"github.com/klauspost/compress/zstd"
)

// dictionary is some messages without the digits of their hashes, as the program train
// chose them. It is a raw dictionary (RFC 8878 section 5): what decoders see as the text
// before a frame. So RFC 9842 can use it, which has no other kind.
//
//go:embed dictionary.txt
var dictionary string

// Dictionary returns the dictionary. The caller may change the copy.
func Dictionary() []byte { return []byte(dictionary) }

// Digest returns the SHA-256 of the Dictionary.
func Digest() [sha256.Size]byte { return sha256.Sum256([]byte(dictionary)) }

// Name returns the Digest in hex. It is the name of the Dictionary: another dictionary has
// another name.
func Name() string {
	d := Digest()
	return hex.EncodeToString(d[:])
}

// useDictionary and readDictionary are the options for the dictionary. It has the number 0,
// so frames do not name it.
func useDictionary() zstd.EOption  { return zstd.WithEncoderDictRaw(0, Dictionary()) }
func readDictionary() zstd.DOption { return zstd.WithDecoderDictRaw(0, Dictionary()) }
