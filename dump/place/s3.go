package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// A bucket is a Place in S3.
type bucket struct {
	client       *minio.Client
	name, prefix string
}

// partSize is how much of a file is in memory while it is written. A file has 10,000 parts
// at most, so none has more than 156 GiB.
const partSize = 16 << 20

func openS3(p parsed) (Place, error) {
	client, err := minio.New(p.endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: p.endpoint.Scheme == "https",
		Region: p.region,
	})
	if err != nil {
		return nil, fmt.Errorf("open the place for content: %w", err)
	}
	return &bucket{client, p.bucket, p.prefix}, nil
}

// Create begins an upload in parts. Until it is completed, S3 shows no file.
func (b *bucket) Create(ctx context.Context, name string) (Writer, error) {
	in, out := io.Pipe()
	w := &s3Writer{out: out, done: make(chan error, 1)}
	go func() { // ends when w is committed or aborted, or the upload fails
		_, err := b.client.PutObject(ctx, b.name, b.prefix+name, in, -1, minio.PutObjectOptions{
			PartSize: partSize, ContentType: "application/octet-stream",
			// Each part has an MD5. Parts that are signed piece by piece are more than some servers know.
			SendContentMd5: true, DisableContentSha256: true,
		})
		if err != nil {
			err = fmt.Errorf("write %s: %w", name, err)
		}
		_ = in.CloseWithError(cause(err)) // what is written from now on fails
		w.done <- err
	}()
	return w, nil
}

func cause(err error) error {
	if err == nil {
		return io.ErrClosedPipe
	}
	return err
}

type s3Writer struct {
	out   *io.PipeWriter
	done  chan error // what became of the upload
	ended bool
}

func (w *s3Writer) Write(b []byte) (int, error) { return w.out.Write(b) }

// Commit waits until S3 has all.
func (w *s3Writer) Commit() error {
	w.ended = true
	_ = w.out.Close() // never fails
	return <-w.done
}

// Abort lets the upload fail, and waits until S3 was told so.
func (w *s3Writer) Abort() {
	if !w.ended {
		w.ended = true
		_ = w.out.CloseWithError(errAborted)
		<-w.done
	}
}

var errAborted = errors.New("the file is not wanted any more")

// Open asks for the size of a file. Its bytes are asked for when they are read.
func (b *bucket) Open(ctx context.Context, name string) (File, error) {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	info, err := object.Stat()
	if err != nil {
		_ = object.Close() // it was not read
		if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
			return nil, fmt.Errorf("%w: %s", ErrAbsent, name)
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return &s3File{object, info.Size}, nil
}

type s3File struct {
	*minio.Object
	size int64
}

func (f *s3File) Size() int64 { return f.size }

// Remove removes a file.
func (b *bucket) Remove(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// List lists the bucket.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
			if o.Err != nil {
				yield(Info{}, fmt.Errorf("list %s in the place for content: %w", prefix, o.Err))
				return
			}
			if !yield(Info{o.Key[len(b.prefix):], o.LastModified}, nil) {
				return
			}
		}
	}
}

// Close does nothing: connections that are idle end by themselves.
func (b *bucket) Close() error { return nil }
