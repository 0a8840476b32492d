package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// unpacked returns what r has, unpacked if it is gzipped.
func unpacked(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, peekSize)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return unpacking{z}, nil
}

// unpacking says in its errors that gzip was cut off.
type unpacking struct{ *gzip.Reader }

func (u unpacking) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unpack: the gzip ends early: a part of it is missing at its end")
	}
	return n, err
}
