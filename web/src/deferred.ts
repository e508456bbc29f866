/** A value that changes while someone types: the list follows a moment later, so typing stays quick with 10,000 rows. */
import { useEffect, useState } from "preact/hooks";

export function useDeferred<T>(value: T, ms = 60): T {
  const [late, setLate] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLate(value), ms);
    return () => clearTimeout(timer);
  }, [value]);
  return late;
}
