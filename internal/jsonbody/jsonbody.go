// Package jsonbody reads and writes bodies of requests and answers that are one JSON value.
package jsonbody

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// Read reads the one JSON value of a body into v. Members that v does not have are an error,
// and so is anything that follows the value. An empty body is io.EOF. An error of the reader
// is returned as it is.
func Read(body io.Reader, v any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("there is more text after the JSON value")
	}
	return nil
}

// Write answers with v, which JSON can have. Nobody may keep the answer.
func Write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
