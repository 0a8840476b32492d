package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// A result says what is of a query.
type result struct {
	Query   string
	Metrics []string            // that it names
	Labels  []map[string]string // of each series that it returns
}

// answerQueries evaluates queries at the end of series. file has a JSON array of
// them.
func answerQueries(engine *promql.Engine, file string, series queryable, end time.Time, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var queries []string
	if err := json.Unmarshal(text, &queries); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	results := []result{}
	for _, query := range queries {
		r := result{Query: query, Labels: []map[string]string{}}
		if r.Metrics, err = metrics(query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		q, err := engine.NewInstantQuery(context.Background(), series, nil, query, end)
		if err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		v, err := q.Exec(context.Background()).Vector()
		if err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		for _, s := range v {
			r.Labels = append(r.Labels, s.Metric.Map())
		}
		q.Close()
		results = append(results, r)
	}
	return json.NewEncoder(out).Encode(results)
}
