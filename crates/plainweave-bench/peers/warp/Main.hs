{-# LANGUAGE OverloadedStrings #-}

-- The server of `plainweave-bench http` on Warp, with a fixed answer. Prints its address. With --chunked it does not
-- say how long the answer is, and Warp sends it in chunks.
module Main (main) where

import Network.HTTP.Types (status200)
import Network.Wai (responseLBS)
import Network.Wai.Handler.Warp (defaultSettings, openFreePort, runSettingsSocket)
import System.Environment (getArgs)
import System.IO (hFlush, stdout)

main :: IO ()
main = do
  (port, listener) <- openFreePort
  putStrLn ("127.0.0.1:" ++ show port)
  hFlush stdout
  arguments <- getArgs
  let len = [("Content-Length", "13") | "--chunked" `notElem` arguments]
      answer = responseLBS status200 (("Content-Type", "text/plain") : len) "Hello, World!"
  runSettingsSocket defaultSettings listener (\_ respond -> respond answer)
