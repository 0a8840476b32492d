// Package place keeps the contents that dumps are made of: large files, each written once
// and never changed, in a directory or in a bucket of S3. It does not know what they are.
package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// A Place keeps files by name. A name is like a/b/c.zip: words of [a-z0-9._-] with slashes
// between them, and no word begins with a dot. The methods may be called concurrently. They
// block until the place has answered or ctx is done.
type Place interface {
	// Create begins a file. Nobody sees it before Commit. A file of that name that is there
	// is replaced then. ctx counts until Commit has returned.
	Create(ctx context.Context, name string) (Writer, error)

	// Open opens a file to read it. ctx counts until it is closed. The error is ErrAbsent if
	// there is none of that name.
	Open(ctx context.Context, name string) (File, error)

	// Remove removes a file. It does nothing if there is none.
	Remove(ctx context.Context, name string) error

	// List yields the files whose names begin with prefix, in no order. The prefix is empty
	// or ends with a slash. An error ends the sequence.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Close frees what the Place holds. Nothing may be under way.
	Close() error
}

// A Writer writes a file. The caller ends it with Commit or with Abort.
type Writer interface {
	io.Writer

	// Commit makes the file durable, and then seen as a whole. After an error there is no
	// such file, or the whole of it.
	Commit() error

	// Abort drops what was written. After Commit it does nothing.
	Abort()
}

// A File is a file that is read, from any byte on. Only one goroutine may use it. The caller
// closes it.
type File interface {
	io.ReadSeekCloser
	Size() int64
}

// An Info is what is known of a file without opening it.
type Info struct {
	Name    string
	Changed time.Time // when it was written, by the clock of the place
}

// ErrAbsent means that the place has no file of that name.
var ErrAbsent = errors.New("there is no such file in the place for content")

// Open opens the place that text names: the path of a directory, dir:PATH, or
// s3://BUCKET/PREFIX. The directory is made if it is not there. Parameters of an s3 URL are
// endpoint (the URL of a server other than Amazon's, such as http://127.0.0.1:9000) and
// region. Who may use the bucket follows from the environment, as Amazon's tools have it:
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a file of credentials, or the role of the
// machine. Open does not ask the server.
func Open(text string) (Place, error) {
	p, err := parse(text)
	if err != nil {
		return nil, err
	}
	if p.dir != "" {
		return openDir(p.dir)
	}
	return openS3(p)
}

// Check returns nil if Open can understand a text.
func Check(text string) error {
	_, err := parse(text)
	return err
}

// A parsed is what the text of a place says.
type parsed struct {
	dir string

	bucket, prefix, region string
	endpoint               *url.URL
}

func parse(text string) (p parsed, err error) {
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case ok && scheme == "s3":
		return parseS3(text)
	case ok && scheme == "dir":
		text = rest
	case ok && len(scheme) > 1 && strings.HasPrefix(rest, "//"):
		return p, fmt.Errorf("%s:// is no place that is known: it is a directory, or s3://BUCKET/PREFIX", scheme)
	}
	if text == "" {
		return p, errors.New("it names no directory")
	}
	p.dir = filepath.Clean(text)
	return p, nil
}

func parseS3(text string) (p parsed, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Fragment != "" {
		return p, errors.New("it is not like s3://BUCKET/PREFIX?endpoint=URL&region=NAME")
	}
	if u.User != nil {
		return p, errors.New("it has a user or a password in it: they belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	p.bucket = u.Host
	if p.prefix = strings.Trim(u.Path, "/"); p.prefix != "" {
		p.prefix += "/"
	}
	p.endpoint = &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	for name, values := range u.Query() {
		switch name {
		case "region":
			p.region = values[0]
		case "endpoint":
			if p.endpoint, err = url.Parse(values[0]); err != nil || p.endpoint.Host == "" || p.endpoint.Scheme != "http" && p.endpoint.Scheme != "https" || strings.Trim(p.endpoint.Path, "/") != "" {
				return p, errors.New("its endpoint is not like https://s3.example.org")
			}
		default:
			return p, fmt.Errorf("it has the parameter %q: there are endpoint and region", name)
		}
	}
	return p, nil
}
