package server

import (
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/problem"
)

// callers finds out who makes a request.
type callers struct {
	tokens *access.Tokens // nil: everybody may do everything
	errors *problem.Adapter
}

// identify puts the caller into the request's context.
func (c *callers) identify(next http.Handler) http.Handler {
	return c.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller := access.Caller{Rights: access.All()}
		if c.tokens != nil {
			var err error
			if caller, err = c.tokens.Caller(r); err != nil {
				return err
			}
		}
		next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), caller)))
		return nil
	})
}
