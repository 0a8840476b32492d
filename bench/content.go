//go:build linux

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A content is the changes that are published: a number of them that every size
// of batch divides, so that a batch is a slice of it.
type content []resourcesync.Change

const contentSize = 20_000

// loadContent reads real changes, gzipped NDJSON, or makes some of the same
// shape when there is no such file.
func loadContent(path string) (c content, name string, err error) {
	f, err := os.Open(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return synthetic(), "synthetic changes", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	lines := bufio.NewScanner(z)
	for len(c) < contentSize && lines.Scan() {
		change, err := resourcesync.ParseChange(lines.Bytes())
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", path, err)
		}
		c = append(c, *change)
	}
	if err := lines.Err(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	if len(c) == 0 {
		return nil, "", fmt.Errorf("%s: no changes", path)
	}
	for i := 0; len(c) < contentSize; i++ {
		c = append(c, c[i])
	}
	return c, path, nil
}

// synthetic makes changes of the shape of the history of Python's PEPs: 270
// bytes each as JSON, most of it two digests.
func synthetic() content {
	c := make(content, contentSize)
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range c {
		body := fmt.Appendf(nil, "resource %d", i)
		length := int64(1000 + i%50_000)
		c[i] = resourcesync.Change{
			Loc:     fmt.Sprintf("https://raw.example.org/collection/documents/main/item-%04d.txt", i%700),
			Change:  resourcesync.Updated,
			Lastmod: at.Add(time.Duration(i) * 7 * time.Minute),
			Hash:    fmt.Sprintf("md5:%x sha-256:%x", md5.Sum(body), sha256.Sum256(body)),
			Length:  &length,
			Type:    "text/plain",
		}
		if i < 700 {
			c[i].Change = resourcesync.Created
		}
	}
	return c
}

// batch returns the i-th run of n changes; behind the last is the first again.
func (c content) batch(i, n int) []resourcesync.Change {
	at := i % (len(c) / n) * n
	return c[at : at+n]
}

// ndjson returns changes as they are published.
func ndjson(changes []resourcesync.Change) (lines []byte) {
	for i := range changes {
		lines = append(lines, '{')
		lines = resourcesync.AppendJSONMembers(lines, &changes[i])
		lines = append(lines, "}\n"...)
	}
	return lines
}

// document returns changes as they are published in one document.
func document(changes []resourcesync.Change) []byte {
	lines := bytes.ReplaceAll(bytes.TrimSpace(ndjson(changes)), []byte("\n"), []byte(","))
	return append(append([]byte(`{"changes":[`), lines...), "]}"...)
}
