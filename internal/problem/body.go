package problem

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/gunzip"
	"github.com/rshub/rshub/resourcesync"
)

// BodyError converts an error of reading a request's body to one that tells the client what is
// wrong with the body or the connection.
func BodyError(err error) error {
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[*gunzip.Error](err); ok {
		return resourcesync.Invalidf("body: %s", e.Rule)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*feed.Error](err); ok { // the hub is out of space
		return err
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return resourcesync.Invalidf("the body ends early")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return New(http.StatusRequestTimeout, "timeout", "timeout while reading the body")
	}
	return New(http.StatusBadRequest, "unreadable", "read body: "+err.Error())
}
